# sed -i -f laptop.sed cluster.yaml train.sbatch: the same job on two nodes, which hold one copy of the model.
s/MinCount: .*/MinCount: 2/
s/MaxCount: .*/MaxCount: 2/
s/--nodes=32/--nodes=2/
