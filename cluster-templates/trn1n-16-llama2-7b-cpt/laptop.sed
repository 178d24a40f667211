# sed -i -f laptop.sed cluster.yaml run.yaml train.sbatch: the same job with two nodes of two ranks, short rows,
# eight steps.  For a small Llama in Llama-2-7b-hf.
s/MinCount: .*/MinCount: 2/
s/MaxCount: .*/MaxCount: 2/
s/--nodes=16 --ntasks-per-node=32/--nodes=2 --ntasks-per-node=2/
s/{global: 2048, micro: 1, seq_len: 4096}/{global: 8, micro: 1, seq_len: 64}/
s/^tokens: .*/steps: 8/
s/{tensor: 8,/{tensor: 2,/
s/warmup: 100/warmup: 2/
s/every: 500/every: 4/
s/{ranks_per_node: 32,/{ranks_per_node: 2, threads: 1,/
