/* Runs a function of both files in turns. Arguments: its number, and which file is the first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "by_hand.h"
#include "emitted.h"

static struct m_mesh *mesh;

static const struct {
  const char *name;
  int (*emitted)(struct m_mesh *, const float *, float *);
  int (*by_hand)(const float *, float *);
  size_t in, out, runs;
} cases[] = {
  {"pencil", pencil, hand_pencil, (size_t)SIDE * SIDE / RANKS, (size_t)SIDE * SIDE / RANKS, 10},
  {"sum", sum, hand_sum, SUM, SUM, 10},
  {"columns", columns, hand_columns, (size_t)1000 * COLUMNS, (size_t)1000 * COLUMNS, 10},
  {"halo", halo, hand_halo, (size_t)ROWS * 1000, (size_t)(ROWS + 2) * 1000, 26},
  {"small", small, hand_small, 2, 2, 20000},
};

static double slowest(double start)
{
  double taken = MPI_Wtime() - start, most;
  MPI_Allreduce(&taken, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

int main(int argc, char **argv)
{
  int rank, wrong;
  if (argc < 3) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (m_create(MPI_COMM_WORLD, &mesh)) MPI_Abort(MPI_COMM_WORLD, 1);
  hand_create((size_t)SUM * sizeof(float));
  size_t n = (size_t)atoi(argv[1]), first = (size_t)atoi(argv[2]);
  float *x = malloc(cases[n].in * sizeof *x);
  float *ours = malloc(cases[n].out * sizeof *ours), *theirs = malloc(cases[n].out * sizeof *ours);
  double best[2] = {1e300, 1e300};
  if (!x || !ours || !theirs) MPI_Abort(MPI_COMM_WORLD, 1);
  for (size_t i = 0; i < cases[n].in; ++i) x[i] = (float)((i * 7 + (size_t)rank * 3) % 16);
  for (size_t i = 0; i < 2 * cases[n].runs; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), taken;
    size_t which = (first + (i + 1) / 2) % 2; /* as in 0 1 1 0 */
    int err = which ? cases[n].by_hand(x, theirs) : cases[n].emitted(mesh, x, ours);
    if (err) MPI_Abort(MPI_COMM_WORLD, 1);
    taken = slowest(start);
    if (taken < best[which]) best[which] = taken;
  }
  wrong = memcmp(ours, theirs, cases[n].out * sizeof *ours) != 0;
  if (rank == 0)
    printf("%s %.9f %.9f\n", cases[n].name, best[0], best[1]);
  free(x);
  free(ours);
  free(theirs);
  if (wrong) printf("rank %d: results differ\n", rank);
  m_destroy(mesh);
  hand_destroy();
  MPI_Finalize();
  return wrong;
}
