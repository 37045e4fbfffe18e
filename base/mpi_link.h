/* Processes that mpirun has started. A library of its own, so that only the program itself, and nothing that takes its parts,
 * needs MPI. */
#ifndef SPW_BASE_MPI_LINK_H
#define SPW_BASE_MPI_LINK_H

#include "base/processes.h"

extern const spw_process_link spw_mpi_link;

#endif
