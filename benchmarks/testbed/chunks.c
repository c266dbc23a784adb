/* A chunk program on a rank. Pieces of chunks go through it one after the other, as runtimes loop
 * over large buffers. A connection holds WINDOW messages that its receiver has not begun to take. */
enum { RECEIVES = 1, REDUCES = 2, SENDS = 4, WINDOW = 8, MOST_BLOCKS = 256 };
struct after { int block, step; };
struct step { int does; size_t begin, end; int after, afters; };
struct block { int to, from, channel, step, steps; };
struct program { int pieces, blocks; const struct block *block; const struct step *step; const struct after *after; };

/* What a thread block is at. Of its requests the last one receives, and the others send. */
struct state {
  int at, has_asked, has_come;
  float *came;
  MPI_Request requests[WINDOW + 1];
  const float *sent[WINDOW], *sent_end[WINDOW];
};

static int is_leaving(const struct state *states, int blocks, const float *begin, const float *end)
{
  for (int b = 0; b < blocks; ++b)
    for (int w = 0; w < WINDOW; ++w)
      if (states[b].requests[w] != MPI_REQUEST_NULL && begin < states[b].sent_end[w] &&
          states[b].sent[w] < end)
        return 1;
  return 0;
}

/* Runs a step of thread block b if nothing hinders it, and returns whether it ran. */
static int run_step(const struct program *p, struct state *states, int b, float *memory)
{
  const struct block *block = &p->block[b];
  struct state *own = &states[b];
  int piece = own->at / block->steps, slot = 0;
  const struct step *step;
  float *begin, *end;
  size_t size, length;
  if (own->at == block->steps * p->pieces) return 0;
  step = &p->step[block->step + own->at % block->steps];
  length = step->end - step->begin;
  begin = memory + step->begin + length * (size_t)piece / (size_t)p->pieces;
  end = memory + step->begin + length * (size_t)(piece + 1) / (size_t)p->pieces;
  size = (size_t)(end - begin);
  if (step->does & RECEIVES && !own->has_asked) {
    own->has_asked = 1;
    own->has_come = 0;
    MPI_Irecv(own->came, (int)size, MPI_FLOAT, block->from, block->channel, MPI_COMM_WORLD,
              &own->requests[WINDOW]);
  }
  if (step->does & SENDS) {
    while (slot < WINDOW && own->requests[slot] != MPI_REQUEST_NULL) ++slot;
    if (slot == WINDOW) return 0;
  }
  for (int i = step->after; i < step->after + step->afters; ++i) {
    const struct after *after = &p->after[i];
    if (states[after->block].at <= piece * p->block[after->block].steps + after->step) return 0;
  }
  if (step->does & RECEIVES) {
    if (!own->has_come || is_leaving(states, p->blocks, begin, end)) return 0;
    if (step->does & REDUCES)
      for (size_t i = 0; i < size; ++i) begin[i] += own->came[i];
    else memcpy(begin, own->came, size * 4);
    own->has_asked = 0;
  }
  if (step->does & SENDS) {
    own->sent[slot] = begin;
    own->sent_end[slot] = end;
    MPI_Issend(begin, (int)size, MPI_FLOAT, block->to, block->channel, MPI_COMM_WORLD,
               &own->requests[slot]);
  }
  ++own->at;
  return 1;
}

static int run_program(const struct program *p, float *memory)
{
  static struct state states[MOST_BLOCKS];
  static MPI_Request waited[MOST_BLOCKS * (WINDOW + 1)];
  static int where[MOST_BLOCKS * (WINDOW + 1)], done[MOST_BLOCKS * (WINDOW + 1)];
  if (p->blocks > MOST_BLOCKS) return MPI_ERR_OTHER;
  for (int b = 0; b < p->blocks; ++b) {
    states[b].at = states[b].has_asked = 0;
    for (int w = 0; w <= WINDOW; ++w) states[b].requests[w] = MPI_REQUEST_NULL;
    if (!states[b].came) states[b].came = malloc(ELEMENTS * 4);
  }
  for (;;) {
    int ran = 0, left = 0, count = 0, arrived;
    for (int b = 0; b < p->blocks; ++b) {
      while (run_step(p, states, b, memory)) ran = 1;
      left |= states[b].at < p->block[b].steps * p->pieces;
    }
    if (ran) continue;
    for (int b = 0; b < p->blocks; ++b)
      for (int w = 0; w <= WINDOW; ++w)
        if (states[b].requests[w] != MPI_REQUEST_NULL) {
          where[count] = b * (WINDOW + 1) + w;
          waited[count++] = states[b].requests[w];
        }
    if (!left && !count) return MPI_SUCCESS;
    if (!count) return MPI_ERR_OTHER; /* blocks wait for each other: proven not to happen */
    MPI_Waitsome(count, waited, &arrived, done, MPI_STATUSES_IGNORE);
    for (int i = 0; i < arrived; ++i) {
      int b = where[done[i]] / (WINDOW + 1), w = where[done[i]] % (WINDOW + 1);
      states[b].requests[w] = MPI_REQUEST_NULL;
      if (w == WINDOW) states[b].has_come = 1;
    }
  }
}
