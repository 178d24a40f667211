/* core/slurm: --signal of a batch script, as sbatch reads it. */
#include "core/slurm/slurm.h"

#include "tests/unit/tap.h"

static void scripts(void)
{
    static const struct {
        const char *script, *name;
        int64_t seconds;
    } rows[] = {
        {"#!/bin/bash\n#SBATCH --signal=B:USR1@600\ntern run x\n", "a signal to the script alone",
         600},
        {"#!/bin/bash\n#SBATCH --signal=USR1@90\n", "a signal to the steps", 90},
        {"#!/bin/bash\n#SBATCH --signal USR1@90\n", "the value in the next word", 90},
        {"#!/bin/bash\n#SBATCH --signal=RB:10@300\n", "a number, and R for reservations", 300},
        {"#!/bin/bash\n#SBATCH --signal=USR2\n", "sbatch's minute without a time", 60},
        {"#!/bin/bash\r\n#SBATCH -N2 --signal=\"B:USR1@240\" -t 1:00:00 # why\r\n",
         "an option among others, in quotes", 240},
        {"#!/bin/bash\n#SBATCH --sig=USR1@70\n", "an option's short form", 70},
        {"#!/bin/bash\n#SBATCH --signal=USR1@70\n#SBATCH --signal=USR1@80\n", "the last of two",
         80},
        {"#!/bin/bash\n\n# text\n#SBATCH --signal=USR1@70", "comments before, no newline after",
         70},
        {"#!/bin/bash\n##SBATCH --signal=USR1@70\n", "a line that is commented out", -1},
        {"#!/bin/bash\n#SBATCH -N2 # --signal=USR1@70\n", "an option in a comment", -1},
        {"#!/bin/bash\ntern run x\n#SBATCH --signal=USR1@70\n", "a line after the first command",
         -1},
        {"#!/bin/bash\n#SBATCH --signal=USR1@soon\n", "a time that is no number", -1},
        {"#!/bin/bash\n#SBATCH --signal\n", "an option without a value", -1},
        {"#!/bin/bash\n#SBATCH --signals=USR1@70\n", "another option's name", -1},
        {"", "an empty script", -1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ok(tern_slurm_signal_in_script(rows[i].script) == rows[i].seconds,
           "seconds of --signal in a script: %s", rows[i].name);
}

int main(void)
{
    scripts();
    ok(tern_slurm_signal_read("B:USR1@600") == 600 && tern_slurm_signal_read("") == -1,
       "the option's value alone is read");
    return tap_done();
}
