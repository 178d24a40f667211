#!/bin/bash
# tern ledger watch: frames at 80 columns are files of tests/golden/watch; on a terminal keys choose panes,
# only lines that changed are sent, and the terminal is given back however the command ends.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/ledger TERM=xterm; mkdir ledger
# write RUN ATTEMPT RESUMED FROM TO [END]: its id is in $id.
write() { id=$(WRITER_SPEED=2 WRITER_PHASES=1 WRITER_RANKS=${ranks-6} "$W" ledger "$@"); id=${id%%[!0-9A-Z]*}; }
export WRITER_NAME=crash
WRITER_EVENT="rank 3 reported: the device is gone, and what it said last is longer than a line" WRITER_CAUSE="node trn1-2 is down" write new 1 0 1 330 node_fail; crash=$id
write "$crash" 2 300 301 350 >/dev/null; export WRITER_NAME=lora; ranks=0 write new 1 0 1 400 done; lora=$id

# ---- one frame
# frame NAME: the output is that file but for ids, times, and how long ago.
frame() {
    status 0; [ -z "$(wider 80 out)" ]; ok $? "$1 fits 80 columns" || cat out
    [ "$(wc -l <out)" -le 24 ]; ok $? "$1 fits 24 lines"
    sed -E 's/[0-9A-HJKMNP-TV-Z]{26}/ID/; s/record [0-9.]+ [a-z]+ ago/record T ago/; s/20[0-9]{2}(-[0-9]{2}){2}T[0-9:]{8}/DATE/; s/DATE +[0-9.]+ (s|min) /DATE TOOK /' out >frame
    cmp -s "$ROOT/tests/golden/watch/$1.txt" frame; ok $? "the frame is tests/golden/watch/$1.txt" || diff "$ROOT/tests/golden/watch/$1.txt" frame
}
for pane in curves phases ranks events checkpoints; do run tern ledger watch crash --pane $pane; frame $pane; done
run tern ledger watch lora --once; frame ended; out_has "ended: done"
run tern ledger watch lora --pane ranks; out_has "no values of single ranks are recorded"
run env COLUMNS=40 tern ledger watch crash; status 0; [ -z "$(wider 40 out)" ]; ok $? "a small frame fits 40 columns" || cat out
out_has "(panes need 56 x 16" "a small frame has the header alone, and says why"
run env COLUMNS=300 tern ledger watch crash; status 0; [ -z "$(wider 300 out)" ] && [ -n "$(wider 200 out)" ]; ok $? "a frame is as wide as 300 columns"
run env COLUMNS=1000 tern ledger watch crash; [ -z "$(wider 300 out)" ]; ok $? "a frame is no wider than 300 columns"
run env LC_ALL=C tern ledger watch crash; ! LC_ALL=C grep -q '[^ -~]' out; ok $? "plain ASCII in a plain locale"
run tern ledger watch crash --ascii; ! LC_ALL=C grep -q '[^ -~]' out; ok $? "--ascii: no braille"
run tern ledger watch crsh; status 2; err_has "did you mean 'crash'?"; one_line
run tern ledger watch crash --pane event; status 2; err_has "did you mean 'events'?"; one_line
for s in 0 0.05 nan 4000; do run tern ledger watch crash --every $s; status 2; one_line; done
bidi=$(printf '\342\200\256')
WRITER_NAME=$'evil\033[2J\n'"$bidi$(printf 'x%.0s' $(seq 100))" WRITER_SETS="${bidi}set" WRITER_EVENT=$'\033[31mred\033[0m'"$bidi" WRITER_CAUSE=$'\033c\rgone\x9b' write new 1 0 1 200 $'do\033ne'
for pane in curves phases ranks events checkpoints; do
    run tern ledger watch "$id" --pane $pane; status 0
    ! LC_ALL=C grep -qE "$(printf '[\001-\010\013-\037\177\233]|\342\200\256')" out; ok $? "$pane: no text of a run is a command of a terminal" || cat -v out
    [ -z "$(wider 80 out)" ]; ok $? "$pane: a long name does not make it wider"
done

# ---- on a terminal
cat >on.py <<'P'
import os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
from terminal import Terminal

def watch(*words, columns=80, rows=24):
    t = Terminal(columns, rows, ["tern", "ledger", "watch", *words])
    return t

def is_clean(t, before):
    assert t.stty() == before, "the terminal's modes are not those before"
    assert 25 in t.modes and 7 in t.modes and 1049 not in t.modes, t.modes
P
on() { # NAME: the program on stdin ends well
    { cat on.py; cat; } >now.py; timeout 300 python3 now.py "$ROOT/tests/tools" "$crash" "$lora" "$W" >said 2>&1; ok $? "$1" || cat said
}
on "keys choose panes, and q gives the terminal back" <<'P'
t = watch("crash")
before = t.stty()
t.wait("crash", "[1 curves]", "perplexity on general", "q quit")
assert t.modes == {1049} and t.stty() != before, t.modes
for key, words in [("2", "[2 phases]"), ("3", "[3 ranks]"), ("4", "[4 events]"), ("5", "[5 checkpoints]"), ("\t", "[1 curves]"), ("\x1b[Z", "[5 checkpoints]"), ("\x1bOC", "[1 curves]")]:
    t.send(key); t.wait(words)
t.send("m"); t.wait("backward_seconds", "metric (2 of", without=["perplexity"])
t.send("MM"); t.wait("metric (", "update_seconds")
t.send("m"); t.wait("perplexity on general", "\n       20 ┤", without=["\n        3 ┤"])
t.send("l"); t.wait("perplexity on general", "\n        3 ┤")
t.send("h"); t.wait("this page; any key leaves it", without=["perplexity"])
t.send("x"); t.wait("perplexity on general")
t.send("p"); t.wait("PAUSED"); t.send(" "); t.wait("running", without=["PAUSED"])
t.send("q"); assert t.end() == 0
is_clean(t, before)
P
on "Escape quits, and so does a closed terminal" <<'P'
t = watch("lora"); before = t.stty(); t.wait("ended: done", "[1 curves]")
t.send("\x1b"); assert t.end() == 0; is_clean(t, before)
t = watch("lora"); t.wait("[1 curves]"); os.close(t.fd)
assert os.WTERMSIG(os.waitpid(t.pid, 0)[1]) == signal.SIGHUP
P
on "a signal, or a crash, gives the terminal back" <<'P'
for sig in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV:
    t = watch("crash"); before = t.stty(); t.wait("[1 curves]")
    t.send("\x03") if sig == signal.SIGINT else os.kill(t.pid, sig)
    assert t.end() == 128 + sig, sig
    is_clean(t, before)
P
on "Ctrl-Z leaves the shell its terminal, and fg draws the screen again" <<'P'
t = Terminal(80, 24, ["env", "PS1=ready> ", "bash", "--norc", "--noprofile", "-i"])
t.wait("ready>"); t.send("stty -a >before; tern ledger watch crash\r"); t.wait("[1 curves]")
for again in range(2):
    t.send("\x1a"); t.wait("Stopped", "ready>", without=["[1 curves]"])
    assert 1049 not in t.modes and 25 in t.modes
    t.send("stty -a >stopped; echo all $((40 + 2))\r"); t.wait("all 42")
    assert open("before").read() == open("stopped").read()
    t.send("clear\r"); t.wait("ready>", without=["Stopped"])
    t.send("fg\r"); t.wait("[1 curves]", "q quit", without=["ready>"])
os.kill(t.front(), signal.SIGSTOP); t.wait("Stopped", "ready>"); t.send("fg\r"); t.wait("[1 curves]", "q quit", without=["ready>"])
t.send("\x1a"); t.wait("Stopped", "ready>", without=["[1 curves]"])
t.send("clear; p=$(jobs -p); kill %1; while kill -0 $p; do sleep 0.1; done 2>/dev/null; echo gone $((40 + 3))\r"); t.wait("gone 43")
t.send("stty -a >after; exit\r"); assert t.end() == 0
assert open("before").read() == open("after").read()
P
on "another size draws the screen again, a small one has the header alone" <<'P'
t = watch("crash"); t.wait("[1 curves]")
t.resize(120, 30); t.wait("[1 curves]", "q quit"); t.until("the last row", lambda: t.text().split("\n")[29].startswith("q quit"))
t.resize(40, 10); t.wait("crash", "(panes need 56 x 16; q quits)", without=["[1 curves]"])
t.resize(300, 90); t.wait("[1 curves]", "q quit"); t.send("q"); assert t.end() == 0
P
on "a look that finds nothing new sends the age of the newest record alone" <<'P'
env = dict(os.environ, WRITER_NAME="fresh", WRITER_SPEED="2", WRITER_PHASES="1")
subprocess.run([sys.argv[4], "ledger", "new", "1", "0", "1", "200"], env=env, stdout=subprocess.DEVNULL, check=True)
t = watch("fresh", "--every", "0.1"); t.wait("[1 curves]", "record 1"); t.wait("q quit"); t.rows.clear()
t.until("three ages", lambda: len(t.rows) >= 3)
assert set(t.rows) == {1}, t.rows
t.send("p"); t.wait("PAUSED"); t.rows.clear()
t.send("zzz4"); t.wait("[4 events]"); t.rows.clear()
t.send("zzz2"); t.wait("[2 phases]"); body = [r for r in t.rows if r != 1]
assert 2 in body and len(body) == len(set(body)), t.rows
t.send("q"); assert t.end() == 0
P
on "a metric stays chosen when one is new before it in the alphabet" <<'P'
def write(*words, **names):
    out = subprocess.run([sys.argv[4], "ledger", *words], env=dict(os.environ, WRITER_NAME="grows", WRITER_SPEED="2", **names), stdout=subprocess.PIPE, check=True).stdout
    return out.decode().split()[0]
run = write("new", "1", "0", "1", "50")
t = watch("grows", "--every", "0.1"); t.wait("[1 curves]"); t.send("m"); t.wait("lr: ", "(2 of 5)")
write(run, "2", "50", "51", "60", WRITER_PHASES="1"); t.wait("step 60/", "lr: ", "of 11)"); t.send("q"); assert t.end() == 0
P
on "keys come from the terminal where stdin is another file" <<'P'
t = Terminal(80, 24, ["bash", "-c", "tern ledger watch crash </dev/null"]); t.wait("[1 curves]"); t.send("4"); t.wait("[4 events]"); t.send("q"); assert t.end() == 0
P
on "new records appear, the end stays in sight, and a ledger that is gone is tried again" <<'P'
env = dict(os.environ, WRITER_NAME="crash", WRITER_SPEED="2", WRITER_EVENT="it was found")
t = watch("crash", "--every", "0.1", "--pane", "events"); t.wait("[4 events]", "step 350/400")
subprocess.run([sys.argv[4], "ledger", sys.argv[2], "3", "350", "351", "360"], env=env, stdout=subprocess.DEVNULL, check=True)
t.wait("step 360/400", "attempt 3", "fault on trn1-2: it was found"); assert "running" in t.text()
os.rename("ledger", "moved"); t.wait("LEDGER LOST", "step 360/400"); os.rename("moved", "ledger"); t.wait("step 360/400", without=["LEDGER LOST"])
subprocess.run([sys.argv[4], "ledger", sys.argv[2], "4", "360", "361", "400", "done"], env=env, stdout=subprocess.DEVNULL, check=True)
t.wait("ended: done", "step 400/400 (100 %)"); t.send("5"); t.wait("the test said so"); t.send("q"); assert t.end() == 0
P
on "events scroll as in less, and follow the newest at their end" <<'P'
def event(k):
    env = dict(os.environ, WRITER_NAME="crash", WRITER_EVENT=f"event number {k}.")
    subprocess.run([sys.argv[4], "ledger", sys.argv[2], str(k), "400", "401", "400", "failed"], env=env, stdout=subprocess.DEVNULL, check=True)
for k in range(10, 50):
    event(k)
t = watch("crash", "--every", "0.1"); t.wait("[1 curves]"); t.send("4"); t.wait("number 49.", "lines ", without=["number 10."])
t.send("g"); t.wait("number 10.", "lines 1-", without=["number 49."])
t.send("G"); t.wait("number 49."); t.send("k"); t.wait("number 48.", without=["number 49."]); t.send("\x1b[B"); t.wait("number 49.")
t.send("\x1b[5~"); t.wait("lines ", without=["number 49."]); event(50); t.wait("attempt 50", without=["number 50."])
t.send("\x1b[6~\x1b[F"); t.wait("number 50."); event(51); t.wait("number 51.")
t.send("q"); assert t.end() == 0
P
on "colours are for terminals without NO_COLOR, TERM=dumb is one frame" <<'P'
os.environ["NO_COLOR"] = ""
t = watch("crash"); t.wait("[1 curves]"); t.send("q"); assert t.end() == 0
os.environ["TERM"] = "dumb"
t = watch("crash"); assert t.end() == 0; assert 1049 not in t.modes and "[1 curves]" in t.text()
P
tap_done
