"""Does the time that a text takes grow with its length alone?  token_growth.py PIPE SHORT LONG MODEL...

SHORT, LONG: texts of one kind, LONG's four times as long (token_texts.py).  Seconds of CPU, the best of
several; a quadratic engine takes 16 times as long.  Prints TAP lines without a number."""
import struct
import subprocess
import sys

# Between n log n, whose longer text leaves the processor's cache, and n squared.
LINEAR, TRIES = 12, 6


def seconds(pipe, model, path):
    with open(path, "rb") as texts:
        ours = subprocess.run([pipe, "-t", model], stdin=texts, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=True)
    return [ns * 1e-9 for ns, in struct.iter_unpack("<Q", ours.stdout)]


def main():
    pipe, short, long, *models = sys.argv[1:]
    for model in models:
        best, name = None, "/".join(model.split("/")[-2:])
        for _ in range(TRIES):
            try:
                both = [seconds(pipe, model, short), seconds(pipe, model, long)]
            except subprocess.CalledProcessError:
                break
            best = [list(map(min, a, b)) for a, b in zip(best, both)] if best else both
            ratios = [b / a for a, b in zip(*best)]
            if max(ratios) < LINEAR:
                break
        if not best:
            print("not ok - %s: token-pipe answers" % name)
            continue
        print("%sok - %s: words four times as long take less than %g times the time" %
              ("not " if max(ratios) >= LINEAR else "", name, LINEAR))
        print("# %s: at most %.2f times, %.3f s" % (name, max(ratios), max(best[1])), flush=True)


main()
