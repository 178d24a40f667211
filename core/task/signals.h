/* Signals of the process that runs a rank's program. */
#ifndef TERN_TASK_SIGNALS_H
#define TERN_TASK_SIGNALS_H

#include <stdbool.h>

/* Signals are for the program, which gets them itself.  Called once the program runs. */
void tern_task_signals_ignore(void);
/* Has SIGTERM come since then?  srun ends the ranks by it when one of them has failed. */
bool tern_task_signals_told(void);
/* End as the program did (`status` is wait(2)'s), without a second core file: by its signal, or
 * with the exit status that is returned. */
int tern_task_signals_end_like(int status);

#endif
