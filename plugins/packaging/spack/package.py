# Copyright 2026, the tern authors.
#
# SPDX-License-Identifier: BSD-3-Clause
#
# In a Spack repository of yours: packages/tern/package.py.  The tarball is that of `make dist`.

import os

from spack.package import *


class Tern(MakefilePackage):
    """Continual pre-training of Llama models on Slurm: cluster layouts, a launcher, collectives over
    libfabric, and a ledger of runs in SQLite."""

    url = "file:///srv/tern/tern-@VERSION@.tar.gz"
    license("BSD-3-Clause")

    version("@VERSION@")

    variant("trainer", default=True, description="tern's own trainer and its collectives")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("slurm@22-05:")
    depends_on("libyaml")
    depends_on("jansson")
    depends_on("sqlite@3.26:")
    depends_on("openssl")
    depends_on("zlib-api")
    depends_on("libfabric@1.13:", when="+trainer")
    depends_on("pmix@3:", when="+trainer")
    depends_on("openblas threads=openmp", type="run", when="+trainer")

    @property
    def settings(self):
        wanted = [
            "PREFIX=" + self.prefix,
            "SLURM_PREFIX=" + self.spec["slurm"].prefix,
            "WITH_TRAINER=" + ("yes" if self.spec.satisfies("+trainer") else "no"),
        ]
        return wanted

    def build(self, spec, prefix):
        make("all", "man", *self.settings)

    def install(self, spec, prefix):
        make("install", "PLUGSTACK_DIR=" + os.path.join(prefix, "etc", "plugstack.conf.d"), *self.settings)

    def setup_run_environment(self, env):
        if self.spec.satisfies("+trainer"):
            env.set("TERN_BLAS", os.path.join(self.spec["openblas"].prefix.lib, "libopenblas.so.0"))
