# llm.c's CPU program as a peer: DIR=checkout WORK=folder TEXT=file THREADS= B= T= V= STEPS=
#
# Its program wants GPT-2's weights and tokenised files, and has B and T written into its source.
# The weights' speed does not depend on their values, so they are random; tokens are the text's
# bytes; B and T are set in a copy under WORK, which is compiled as its Makefile says (-Ofast, the
# machine's own instructions, OpenMP).  Prints the lines that tests/bench reads.
import array
import os
import random
import re
import signal
import subprocess
import sys

a = dict(w.split("=", 1) for w in sys.argv[1:])
B, T, V, work = int(a["B"]), int(a["T"]), int(a["V"]), os.path.abspath(a["WORK"])
source = os.path.join(os.path.abspath(a["DIR"]), "train_gpt2.c")
if not os.path.exists(source):
    print("skip there is no", source, flush=True)
    sys.exit(0)


def header(*values):
    return array.array("i", list(values) + [0] * (256 - len(values))).tobytes()


def write_weights(path):
    C, L, max_T, padded = 768, 12, 1024, (V + 127) // 128 * 128
    n = padded * C + max_T * C + L * (12 * C * C + 13 * C) + 2 * C
    rng = random.Random(1337)
    tile = array.array("f", (rng.gauss(0, 0.02) for _ in range(65521))).tobytes()
    with open(path + ".part", "wb") as f:
        f.write(header(20240326, 3, max_T, V, L, 12, C, padded))
        left = 4 * n
        while left > 0:
            f.write(tile[:left])
            left -= len(tile)
    os.replace(path + ".part", path)


def write_tokens(folder):
    os.makedirs(folder, exist_ok=True)
    tokens = array.array("H", list(open(a["TEXT"], "rb").read()))
    for part in ("train", "val"):
        with open(os.path.join(folder, "tiny_shakespeare_%s.bin" % part), "wb") as f:
            f.write(header(20240520, 1, len(tokens)))
            f.write(tokens.tobytes())


os.makedirs(work, exist_ok=True)
if not os.path.exists(os.path.join(work, "gpt2_124M.bin")):
    write_weights(os.path.join(work, "gpt2_124M.bin"))
write_tokens(os.path.join(work, "dev/data/tinyshakespeare"))
code, changed = open(source).read(), 0
for name, value in (("B", B), ("T", T)):
    code, n = re.subn(r"\bint %s = \d+;" % name, "int %s = %d;" % (name, value), code, count=1)
    changed += n
if changed != 2:
    print("skip train_gpt2.c has no \"int B =\" and \"int T =\" to set", flush=True)
    sys.exit(0)
with open(os.path.join(work, "train_gpt2.c"), "w") as f:
    f.write(code)
flags = "-Ofast -fno-finite-math-only -march=native -fopenmp -DOMP -Wno-unused-result -w".split()
built = subprocess.run(["gcc"] + flags + ["-I", os.path.dirname(source), "train_gpt2.c", "-lm",
                                          "-o", "train_gpt2"], cwd=work)
if built.returncode != 0:
    print("skip it does not compile here, see stderr.log", flush=True)
    sys.exit(0)
print("name llm.c (CPU)", flush=True)
env = dict(os.environ, OMP_NUM_THREADS=a["THREADS"])
child = subprocess.Popen(["stdbuf", "-oL", "./train_gpt2"], cwd=work, env=env, text=True,
                         stdout=subprocess.PIPE)
done = 0
for line in child.stdout:
    m = re.match(r"step \d+: train loss \S+ \(took ([0-9.]+) ms\)", line)
    if m:
        print("steps 1 %.6f" % (float(m.group(1)) / 1e3), flush=True)
        done += 1
        if done == int(a["STEPS"]):
            child.send_signal(signal.SIGKILL)
            break
child.wait()
sys.exit(0 if done == int(a["STEPS"]) else 1)
