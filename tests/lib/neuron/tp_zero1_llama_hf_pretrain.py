"""Stand-in of NeuronX Distributed's script for tensor parallelism with ZeRO-1."""
import os

import nxd_trainer

a = nxd_trainer.options("model_path", "data_dir")
if not os.path.exists(f"{a.model_path}/config.json") or not os.path.exists(f"{a.data_dir}/dataset_info.json"):
    raise SystemExit(f"{a.model_path}, {a.data_dir}: no model, or no rows as datasets saves them")
nxd_trainer.train(a, lambda step: f"LOG Sat Nov 21 08:31:07 2026 - (0, {step}) step_loss : {2 + 1 / step:.4f} learning_rate : 1.5e-04 "
                                  "throughput : 94.70 seq/s grad-norm : 0.75")
