/* The functions of run.py as one writes them by hand, on memory that is kept from call to call. */
#include "by_hand.h"

#include <stdlib.h>
#include <string.h>

static float *packed, *received;

void hand_create(size_t bytes)
{
  packed = malloc(bytes);
  received = malloc(bytes);
}

void hand_destroy(void)
{
  free(packed);
  free(received);
}

int hand_pencil(const float *x, float *r)
{
  enum { SMALL = SIDE / RANKS, TILE = 32 };
  for (size_t q = 0; q < RANKS; ++q)
    for (size_t i = 0; i < SMALL; ++i)
      memcpy(packed + (q * SMALL + i) * SMALL, x + i * SIDE + q * SMALL, SMALL * sizeof *x);
  int err = MPI_Alltoall(packed, SMALL * SMALL, MPI_FLOAT, received, SMALL * SMALL, MPI_FLOAT,
                         MPI_COMM_WORLD);
  if (err != MPI_SUCCESS) return err;
  for (size_t i = 0; i < SIDE; i += TILE)
    for (size_t j = 0; j < SMALL; j += TILE)
      for (size_t a = i; a < i + TILE && a < SIDE; ++a)
        for (size_t b = j; b < j + TILE && b < SMALL; ++b) r[b * SIDE + a] = received[a * SMALL + b];
  return MPI_SUCCESS;
}

int hand_sum(const float *x, float *r)
{
  int err = MPI_Reduce_scatter_block(x, packed, SUM / RANKS, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (err != MPI_SUCCESS) return err;
  return MPI_Allgather(packed, SUM / RANKS, MPI_FLOAT, r, SUM / RANKS, MPI_FLOAT, MPI_COMM_WORLD);
}

int hand_columns(const float *x, float *r)
{
  enum { SMALL = COLUMNS / RANKS };
  for (size_t q = 0; q < RANKS; ++q)
    for (size_t i = 0; i < 1000; ++i)
      memcpy(packed + (q * 1000 + i) * SMALL, x + i * COLUMNS + q * SMALL, SMALL * sizeof *x);
  int err = MPI_Reduce_scatter_block(packed, received, 1000 * SMALL, MPI_FLOAT, MPI_SUM,
                                     MPI_COMM_WORLD);
  if (err != MPI_SUCCESS) return err;
  err = MPI_Allgather(received, 1000 * SMALL, MPI_FLOAT, packed, 1000 * SMALL, MPI_FLOAT,
                      MPI_COMM_WORLD);
  for (size_t q = 0; q < RANKS; ++q)
    for (size_t i = 0; i < 1000; ++i)
      memcpy(r + i * COLUMNS + q * SMALL, packed + (q * 1000 + i) * SMALL, SMALL * sizeof *x);
  return err;
}

int hand_halo(const float *x, float *r)
{
  enum { ROW = 1000, LAST = (ROWS + 1) * ROW };
  int rank, up, down, err;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  up = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  down = rank < RANKS - 1 ? rank + 1 : MPI_PROC_NULL;
  MPI_Request both[4];
  if (rank == 0) memset(r, 0, ROW * sizeof *r);
  if (rank == RANKS - 1) memset(r + LAST, 0, ROW * sizeof *r);
  MPI_Irecv(r, ROW, MPI_FLOAT, up, 0, MPI_COMM_WORLD, &both[0]);
  MPI_Irecv(r + LAST, ROW, MPI_FLOAT, down, 1, MPI_COMM_WORLD, &both[1]);
  MPI_Isend(x + (size_t)(ROWS - 1) * ROW, ROW, MPI_FLOAT, down, 0, MPI_COMM_WORLD, &both[2]);
  err = MPI_Isend(x, ROW, MPI_FLOAT, up, 1, MPI_COMM_WORLD, &both[3]);
  memcpy(r + ROW, x, (size_t)ROWS * ROW * sizeof *x);
  if (err != MPI_SUCCESS) return err;
  return MPI_Waitall(4, both, MPI_STATUSES_IGNORE);
}

int hand_small(const float *x, float *r)
{
  return MPI_Allreduce(x, r, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
