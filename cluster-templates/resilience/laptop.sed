# sed -i -f laptop.sed run.yaml: the same job with two ranks a node and short rows, which is stopped by hand.  For a
# small Llama in Llama-2-7b-hf.
s/{global: 1024, micro: 1, seq_len: 4096}/{global: 8, micro: 1, seq_len: 64}/
s/^steps: .*/steps: 1000000/
s/{tensor: 8,/{tensor: 2,/
s/every: 50/every: 10/
s#local: /scratch/tern,#local: /tmp/tern,#
s/{ranks_per_node: 32,/{ranks_per_node: 2, threads: 1,/
s/health: deep/health: quick/
