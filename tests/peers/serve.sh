#!/bin/bash
# The page of tern ledger serve in Chromium: it follows a run, keeps what was chosen, shows other runs,
# and tells when the server is gone; its policy has nothing to complain of.
. "$(dirname "$0")/../lib/tap.sh"
python3 -c 'import sys; sys.path.insert(0, "'"$ROOT"'/tests/tools"); from browser import Browser; sys.exit(not Browser.find())' ||
    skip_all "there is no Chromium (Debian: chromium)"
unset TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/ledger; mkdir ledger
tern ledger serve --socket x 2>&1 | grep -q 'built without' && skip_all "built without libmicrohttpd"
made() { WRITER_NAME=$1 WRITER_PHASES=1 WRITER_SPEED=2 "$W" ledger new 1 0 1 "$2" ${3-} | { read -r id; cat >/dev/null; echo "$id"; }; }
for i in 1 2 3 4 5; do made "more-$i" 3 done >>more; done
other=$(made '</script><img src=x onerror=alert(1)>' 200 done); going=$(made going 120)
tern ledger serve --tcp --every 1 "$going" >told 2>said & server=$!
serve_end() { kill $server; } 2>/dev/null
tap_cleanup=serve_end
until_true [ -s told ]
cat >drive.py <<'P'
import os, signal, subprocess, sys, time
root, url, going, other, server, *more = sys.argv[1:]
sys.path.insert(0, root + "/tests/tools")
from browser import Browser

def say(good, what, more=""):
    print(("" if good else "not ") + "ok - " + what)
    if not good and more != "":
        print("#", str(more)[:600])

def metric(step, value):
    subprocess.run(["tern", "metric", "step=%d" % step, "loss=%s" % value], check=True,
                   env=dict(os.environ, TERN_RUN_SPOOL="%s/runs/%s/spool/1" % (os.environ["TERN_LEDGER"], going)))

def until(b, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if b.eval(what):
            return True
        time.sleep(0.2)
    return False

with Browser() as b:
    b.open(url, width=1000)
    say(until(b, "document.querySelectorAll('section').length > 3"), "the page draws the run's sections", b.eval("document.body.innerText.slice(0, 500)"))
    say(until(b, "document.body.innerText.includes('Looks for news every 1 s')"), "and looks for news")
    say(b.eval("document.querySelectorAll('main svg path').length") > 3, "with curves")
    b.eval("[...document.querySelectorAll('button')].find((x) => x.textContent === 'steps')?.click()")
    log = "[...document.querySelectorAll('#held-out .tools button')].find((x) => x.textContent === 'log axis')"
    b.eval(log + ".click()")
    b.eval("(() => { const s = document.querySelector('#loss input'); s.value = 40; s.dispatchEvent(new Event('input')); })()")
    half = b.eval("document.querySelector('#loss output').textContent")
    b.eval("document.querySelector('#recipes details').open = true")
    b.eval("window.scrollTo(0, 400)")
    pressed = "[...document.querySelectorAll('main button[aria-pressed=true]')].map((x) => x.textContent).join('|')"
    before = b.eval(pressed)
    b.eval("window.__mark = document.querySelector('section')")
    metric(121, 0.123456)
    say(until(b, "window.__mark !== document.querySelector('section')"), "a new value redraws the page")
    say(b.eval(pressed) == before, "what was chosen stays", (before, b.eval(pressed)))
    say(b.eval(log + ".getAttribute('aria-pressed')") == "true", "so does the log axis of held-out sets, whatever their range")
    say(b.eval("document.querySelector('#loss input').value") == "40" and "half-life" in half, "and the smoothing, at the place of its slider",
        (half, b.eval("document.querySelector('#loss input').value")))
    say(b.eval("document.querySelector('#recipes details').open"), "and a recipe that was opened")
    say(abs(b.eval("window.scrollY") - 400) < 60, "and the place on the page", b.eval("window.scrollY"))
    b.eval("window.__mark = document.querySelector('section')")
    time.sleep(3)
    say(b.eval("window.__mark === document.querySelector('section')"), "without news nothing is drawn anew")
    say(b.eval("document.querySelectorAll('nav.runs button').length") == 7, "the list has all runs")
    say(b.eval("[...document.querySelectorAll('nav.runs button')].some((x) => x.textContent.includes('<img src=x'))"), "a name is text, whatever it is")
    b.eval("document.querySelector('nav.runs details').open = true")
    b.eval("document.querySelector('nav.runs button[data-run=\"%s\"]').click()" % other)
    say(until(b, "document.querySelector('main').innerText.includes('<img src=x')"), "a click shows another run")
    b.eval("document.querySelector('nav.runs button[data-run=\"%s\"]').click()" % going)
    say(until(b, "document.querySelector('#made').textContent.startsWith('2 runs')"), "another click a second one beside it")
    say(b.eval("document.querySelectorAll('main img').length") == 0, "no name becomes an element")
    # the phases of the second run are chosen; then it goes
    shown = "document.querySelector('#made').textContent.startsWith('%s')"
    click = "document.querySelector('nav.runs button[data-run=\"%s\"]').click()"
    b.eval("[...document.querySelectorAll('#throughput .tools button')].find((x) => x.textContent === 'going').click()")
    b.eval(click % going)
    say(until(b, shown % "One run"), "a click takes a run away whose phases are shown", b.eval("document.querySelector('header').innerText"))
    say(b.eval("document.querySelectorAll('#throughput figure:last-of-type .curve').length") > 3, "the phases are then those of the run that stays")
    # seven runs: the choice of phases is a list
    b.eval(click % going)
    for run in more:
        b.eval(click % run)
    say(until(b, shown % "7 runs"), "seven runs beside each other", b.eval("document.querySelector('header').innerText"))
    select = "document.querySelector('#throughput select')"
    b.eval("(() => { const s = %s; s.selectedIndex = 1; s.dispatchEvent(new Event('change')); })()" % select)
    b.eval("window.__mark = document.querySelector('section')")
    metric(122, 0.2)
    say(until(b, "window.__mark !== document.querySelector('section')"), "a new value redraws them")
    say(b.eval(select + ".selectedIndex") == 1, "the list shows the run whose phases are drawn", b.eval(select + ".selectedIndex"))
    faults = [f for f in b.faults]
    say(not faults, "the console, exceptions and the page's policy have nothing to say", faults)
    os.kill(int(server), signal.SIGTERM)
    say(until(b, "document.body.innerText.includes('No news since')"), "a server that is gone is reported")
    say(b.eval("document.querySelectorAll('section').length") > 3, "and what was there stays")
P
python3 drive.py "$ROOT" "$(cat told)" "$going" "$other" $server $(cat more) >lines 2>problems; ok $? "the browser went through all of it" || tail -5 problems
tap_lines <lines
tap_done
