# nanoGPT's train.py as a peer: DIR=checkout WORK=folder TEXT=file THREADS= B= T= V= STEPS=
#
# Runs it as its README says for a CPU, on the text's bytes, in a folder of links under WORK, since
# it reads data and configurator from the current one.  Prints the lines that tests/bench reads.
import array
import os
import pickle
import re
import signal
import subprocess
import sys

a = dict(w.split("=", 1) for w in sys.argv[1:])
work, checkout = os.path.abspath(a["WORK"]), os.path.abspath(a["DIR"])
if not os.path.exists(os.path.join(checkout, "train.py")):
    print("skip there is no %s/train.py" % checkout, flush=True)
    sys.exit(0)
try:
    import numpy
    import torch
except Exception as e:
    print("skip no torch and numpy for it here:", str(e).splitlines()[0], flush=True)
    sys.exit(0)
data = os.path.join(work, "data/text")
os.makedirs(data, exist_ok=True)
for name in ("train.py", "model.py", "configurator.py"):
    link = os.path.join(work, name)
    if not os.path.islink(link):
        os.symlink(os.path.join(checkout, name), link)
tokens = array.array("H", list(open(a["TEXT"], "rb").read()))
for part in ("train", "val"):
    with open(os.path.join(data, part + ".bin"), "wb") as f:
        f.write(tokens.tobytes())
with open(os.path.join(data, "meta.pkl"), "wb") as f:
    pickle.dump({"vocab_size": int(a["V"])}, f)
print("name nanoGPT on PyTorch %s" % torch.__version__, flush=True)
settings = dict(device="cpu", dtype="float32", compile=False, dataset="text", eval_iters=1,
                eval_interval=1000000, log_interval=1, block_size=a["T"], batch_size=a["B"],
                n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False, max_iters=a["STEPS"],
                gradient_accumulation_steps=1, always_save_checkpoint=False, out_dir="out",
                grad_clip=1.0, beta2=0.99, weight_decay=0.1)
env = dict(os.environ, OMP_NUM_THREADS=a["THREADS"], MKL_NUM_THREADS=a["THREADS"])
child = subprocess.Popen([sys.executable, "-u", "train.py"] +
                         ["--%s=%s" % w for w in settings.items()],
                         cwd=work, env=env, text=True, stdout=subprocess.PIPE)
done = 0
for line in child.stdout:
    m = re.match(r"iter \d+: loss \S+, time ([0-9.]+)ms", line)
    if m and done < int(a["STEPS"]):
        print("steps 1 %.6f" % (float(m.group(1)) / 1e3), flush=True)
        done += 1
child.wait()
sys.exit(0 if done == int(a["STEPS"]) else 1)
