"""report.py PAGE ODD BARE ENDS LONG STEPS PICTURES: pages of tern ledger report in Chromium; prints TAP's lines.  PAGE has
the runs full, lora and crash (seen by report.sh), ODD names of markup, BARE few values, ENDS extreme ones, LONG so many STEPS."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from browser import Browser  # noqa: E402

steps = int(sys.argv.pop(6))
page, odd, bare, ends, long, pictures = (os.path.abspath(p) for p in sys.argv[1:])


def say(good, what, got=None):
    print(("" if good else "not ") + "ok", what)
    if not good:
        print("#", repr(got)[:600])


def of(selector, what):
    """A place in the plot of the figure that `selector` finds."""
    return f"(() => {{ const e = document.querySelector('{selector}'); e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); return {what}; }})()"


def silent(b, what):
    say(not b.faults, f"{what}: the browser's console and the page's policy have nothing to say", b.faults)
    b.faults.clear()


LOSS = "#loss figure .plot"
CURVE = "document.querySelector('#loss .curve .line:not(.faint)').getAttribute('d')"
TIP = "document.getElementById('tip') && !document.getElementById('tip').hidden ? document.getElementById('tip').innerText : ''"


def place(b, share):
    x, y, w, h = b.eval(of(LOSS, "[r.left, r.top, r.width, r.height]"))
    b.frame()
    return x + 60 + (w - 80) * share, y + h * 0.4


def ticks(b):
    return b.eval("[...document.querySelectorAll('#loss figure .plot')[0].querySelectorAll('.axes text[text-anchor=middle]:not(.name)')].map((t) => t.textContent)")


with Browser() as b:
    b.open("file://" + page, width=1000)
    silent(b, "a page of three runs")
    say(b.requests == ["file://" + page], "the page asks for no other file", b.requests)
    say(b.eval("[...document.querySelectorAll('h2')].map((h) => h.textContent.replace(/^\\d+\\. /, ''))") ==
        ["Held-out perplexity", "Training loss", "Throughput and phases of a step", "Attempts, nodes and failures",
         "Checkpoints", "Data mix", "Goodput and cost", "Differences of the recipes"], "the page has its eight sections")
    say(b.eval("document.querySelectorAll('#held-out figure').length") == 3, "each held-out set has a plot")
    say(b.eval("document.querySelectorAll('#held-out .level').length") > 0, "the baseline is a line across held-out plots")
    say(b.eval("document.querySelectorAll('#loss .checkpoint').length") > 3, "checkpoints are marked on the loss")
    say(b.eval("document.querySelectorAll('#loss svg.plot line.restart').length") == 1, "a restart is marked on the loss")
    say("node trn1-2 is down" in b.eval("document.querySelector('#attempts table').innerText"), "the table of attempts tells the cause of a failure")
    say("trn1-[1-2]" in b.eval("document.querySelector('#attempts table').innerText"), "the table of attempts tells the nodes")

    # ---- values under the pointer
    x, y = place(b, 0.5)
    b.mouse("mouseMoved", x, y)
    words = b.eval(TIP)
    say(all(name in words for name in ("lora", "full", "crash")) and "step" in words, "pointing at the loss shows the values of each run", words)
    step = int(words.split("lora")[1].split("step ")[1].split()[0].replace(",", ""))
    value = float(words.split("lora")[1].split()[0].replace(",", ""))
    want = b.eval("(() => { const r = [...document.querySelectorAll('script.run')].map((e) => JSON.parse(e.textContent)).find((r) => r.name === 'lora');"
                  f" return r.curves.loss.value[r.curves.loss.step.indexOf({step})]; }})()")
    say(abs(value - want) < 1e-3, "the shown value is the ledger's of that step", (value, want))
    b.mouse("mouseMoved", 2, 2)
    say(b.eval(TIP) == "", "the values go when the pointer leaves")

    # ---- a click on a name
    before = b.eval("document.querySelectorAll('#loss > figure .curve').length")
    kx, ky = b.eval(of('#loss .key[data-key="run 0"]', "[r.left + r.width / 2, r.top + r.height / 2]"))
    b.click(kx, ky)
    say(b.eval("document.querySelectorAll('#loss > figure .curve').length") == before - 1 and
        b.eval("document.querySelector('#held-out .curve[data-key=\"run 0\"]')") is None, "a click on a run's name hides it in every plot")
    b.click(kx, ky)
    say(b.eval("document.querySelectorAll('#loss > figure .curve').length") == before, "another click shows it again")

    # ---- zoom
    curve, seen = b.eval(CURVE), ticks(b)
    (x0, y0), (x1, _) = place(b, 0.3), place(b, 0.5)
    b.mouse("mousePressed", x0, y0, "left", 1)
    for k in range(1, 6):
        b.mouse("mouseMoved", x0 + (x1 - x0) * k / 5, y0, "left")
    say(b.eval("document.querySelectorAll('#loss .drag').length") == 1, "what is dragged over is shown")
    b.mouse("mouseReleased", x1, y0, "left", 1)
    say(b.eval(CURVE) != curve and ticks(b) != seen, "dragging zooms", ticks(b))
    b.click(x1, y0, clicks=2)
    say(b.eval(CURVE) == curve and ticks(b) == seen, "a double click returns", ticks(b))
    b.eval("document.querySelector('#loss .plot').focus()")
    b.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight")
    say("step" in b.eval(TIP), "the arrow keys show values, too", b.eval(TIP))

    # ---- axes and smoothing
    def press(section, name):
        b.eval(f"[...document.querySelectorAll('#{section} .tools button')].find((e) => e.textContent === '{name}').click()")
    name = "document.querySelector('#loss .axes .name').textContent"
    names = []
    for kind in "steps", "time", "cost", "tokens":
        press("loss", kind)
        names.append(b.eval(name))
        if kind == "cost":
            most = b.eval("Math.max(...[...document.querySelectorAll('script.run')].map((e) => JSON.parse(e.textContent).node_hours.total.at(-1)))")
            last = float(ticks(b)[-1].replace(",", ""))
            say(10 * most < last <= 20.0001 * most, "a cost is node-hours at the price that was given", (last, most))
    say(len(set(names)) == 4 and names[0] == "step" and names[2] == "cost in USD", "curves stand against steps, time, cost and tokens", names)
    linear = b.eval(CURVE)
    press("loss", "log axis")
    say(b.eval(CURVE) != linear, "the loss has a logarithmic axis")
    press("loss", "log axis")
    b.eval("(() => { const s = document.querySelector('#loss input'); s.value = 40; s.dispatchEvent(new Event('input')); })()")
    say(b.eval("document.querySelectorAll('#loss .faint').length") == 3 and b.eval(CURVE) != linear, "smoothing keeps the raw curve behind")
    press("held-out", "per byte")
    say("per byte" in b.eval("document.querySelectorAll('#held-out .axes .name')[1].textContent"), "perplexity a byte can be had")
    silent(b, "after all that")

    # ---- sizes, the dark, print
    for width in 390, 820, 1400:
        for dark in False, True:
            b.open("file://" + page, width=width, dark=dark, phone=width < 500)
            say(b.eval("document.documentElement.scrollWidth <= innerWidth"), f"{width} px{', dark' if dark else ''}: the page is not wider than the window")
            bad = b.eval("""[...document.querySelectorAll('svg.plot')].flatMap((s) => {
                const box = s.getBoundingClientRect(), t = [...s.querySelectorAll('.axes text')].map((e) => [e.textContent, e.getBoundingClientRect(), e.className.baseVal]);
                const out = t.filter(([, r]) => r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1);
                const over = t.filter(([, r], i) => t.some(([, q], k) => k > i && r.left < q.right - 1 && q.left < r.right - 1 && r.top < q.bottom - 3 && q.top < r.bottom - 3));
                return [...out, ...over].map(([text]) => text); })""")
            say(bad == [], f"{width} px{', dark' if dark else ''}: no two texts of an axis overlap, and none is cut", bad)
            b.picture(os.path.join(pictures, f"report-{width}{'-dark' if dark else ''}.png"))
    say(b.eval("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)", "the page is dark where the reader's system is")
    b.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    say(b.eval("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)" and
        b.eval("getComputedStyle(document.querySelector('.tools')).display") == "none", "print is black on white, without buttons")
    b.call("Emulation.setEmulatedMedia", media="", features=[])

    # ---- names that would be more than texts
    b.open("file://" + odd, width=820)
    silent(b, "a page of odd names")
    say(b.eval("document.querySelectorAll('img, b').length") == 0 and "<img" in b.eval("document.body.innerText"), "markup in a run's name is a text")
    say(b.eval("!/[\\u202e\\u0001\\u001b]/.test(document.body.innerText)"), "a mark of direction in a name is shown as an escape")
    say(b.eval("document.querySelectorAll('#held-out figure').length") == 3, "sets called __proto__ and constructor have plots")

    # ---- few values
    b.open("file://" + bare, width=820)
    silent(b, "a page of few values")
    say(b.eval("document.querySelector('#loss .axes .name').textContent") == "step", "without tokens and times, curves stand against steps")
    say(b.eval("[...document.querySelectorAll('#held-out .axes text[text-anchor=middle]:not(.name)')].every((t) => /^[0-9,]+$/.test(t.textContent))"), "steps are whole numbers on their axis")

    # ---- extreme values
    b.open("file://" + ends, width=820)
    silent(b, "a page of extreme values")
    for share in range(0, 101, 10):
        b.eval(f"(() => {{ const s = document.querySelector('#loss input'); s.value = {share}; s.dispatchEvent(new Event('input')); }})()")
    silent(b, "smoothing a loss that stands still")
    say(all(0 < n < 60 for n in b.eval("[...document.querySelectorAll('#loss .axes')].map((e) => e.querySelectorAll('text').length)")), "plots of extreme values have a few ticks")

    # ---- many steps
    b.open("file://" + long, width=1400, dark=False)
    silent(b, "a page of many steps")
    say(f"{steps:,}" in b.eval("document.querySelector('#loss .thinned').textContent"), "the page tells how many points were thinned")
    took = b.eval("(() => { const t = performance.now(); for (let k = 0; k < 10; k++) document.querySelector('#loss .tools button').click(); return (performance.now() - t) / 10; })()")
    print(f"# redrawing a page of many steps took {took:.1f} ms")
