/* fault.h - failures on demand, so that the binary that is tested is the one that is shipped */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>

enum fault { FAULT_MEMORY, FAULT_FILE, FAULT_NAN, FAULT_COUNT };

/* Counts one call of that kind; true if it is the one that alibi_inject_fault() chose to fail. */
bool fault_due(enum fault kind);

#endif
