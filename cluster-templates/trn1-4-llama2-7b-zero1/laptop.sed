# sed -i -f laptop.sed run.yaml train.sbatch: the same job with two ranks a node, short rows, eight steps.  For a
# small Llama in Llama-2-7b-hf.
s/--ntasks-per-node=32 --exclusive/--ntasks-per-node=2 --exclusive/
s/{global: 1024, micro: 1, seq_len: 4096}/{global: 8, micro: 1, seq_len: 64}/
s/^steps: .*/steps: 8/
s/{tensor: 8,/{tensor: 2,/
s/warmup: 100/warmup: 2/
s/every: 500/every: 4/
s/{ranks_per_node: 32,/{ranks_per_node: 2, threads: 1,/
