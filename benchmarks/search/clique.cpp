// The search of MaxClique, written by hand: the same colouring, order and nodes, as a recursion; with
// OpenMP, the children of the root are divided among threads, which share the size of the best clique.
//
// Reads from standard input: the number of vertices, then for each vertex, in the order of the
// search, its neighbours as 64-bit words in hexadecimal, lowest word first. Arguments: how often to
// search, and threads (1). Prints a line for each search: size, nodes visited, CPU seconds, seconds.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

using Word = std::uint64_t;

void improve(int &best, int size) { best = size; }

void improve(std::atomic<int> &best, int size) {
    int known = best;
    while (known < size && !best.compare_exchange_weak(known, size)) {}
}

template <int W, typename Best> struct Search {
    Best &best;
    int n;
    std::vector<Word> adjacent, apart;  // W words a vertex
    struct Level {
        Word candidates[W];
        std::vector<int> order, colours;
    };
    std::vector<Level> levels;
    std::vector<int> path, clique;
    long long nodes = 0;

    Search(int vertices, Best &shared)
        : best(shared), n(vertices), adjacent(std::size_t(n) * W), apart(adjacent), levels(n + 1), path(n + 1) {
        for (Level &level : levels) level.order.resize(n), level.colours.resize(n);
    }

    void read() {
        for (int v = 0; v < n; ++v)
            for (int w = 0; w < W; ++w) {
                unsigned long long word = 0;
                if (std::scanf("%llx", &word) != 1) std::exit(2);
                adjacent[std::size_t(v) * W + w] = word;
                apart[std::size_t(v) * W + w] = ~word;
            }
        for (int v = 0; v < n; ++v) apart[std::size_t(v) * W + (v >> 6)] &= ~(Word(1) << (v & 63));
    }

    void expand(int size) {
        Level &level = levels[size];
        ++nodes;
        if (size > best) {
            improve(best, size);
            clique.assign(path.begin(), path.begin() + size);
        }
        Word left[W], free[W];
        for (int w = 0; w < W; ++w) left[w] = level.candidates[w];
        int count = 0, colour = size, first = 0;
        while (first < W && !left[first]) ++first;
        while (first < W) {
            ++colour;
            for (int w = first; w < W; ++w) free[w] = left[w];
            for (int w = first; w < W; ++w)
                while (free[w]) {
                    const int bit = __builtin_ctzll(free[w]), v = (w << 6) + bit;
                    left[w] ^= Word(1) << bit;
                    const Word *row = &apart[std::size_t(v) * W];
                    for (int u = w; u < W; ++u) free[u] &= row[u];
                    if (colour > best) {
                        level.order[count] = v;
                        level.colours[count++] = colour;
                    }
                }
            while (first < W && !left[first]) ++first;
        }
        Level &below = levels[size + 1 <= n ? size + 1 : n];
        while (count-- > 0) {
            if (level.colours[count] <= best) return;
            const int v = level.order[count];
            const Word *row = &adjacent[std::size_t(v) * W];
            for (int w = 0; w < W; ++w) below.candidates[w] = level.candidates[w] & row[w];
            path[size] = v;
            expand(size + 1);
            level.candidates[v >> 6] ^= Word(1) << (v & 63);
        }
    }

    void all() {
        for (int w = 0; w < W; ++w) {
            const int bits = n - 64 * w;
            levels[0].candidates[w] = bits >= 64 ? ~Word(0) : bits > 0 ? (Word(1) << bits) - 1 : 0;
        }
    }

    // The root's children in their order, each with the candidates that it has.
    std::vector<int> children() {
        std::vector<int> vertices;
        Level &root = levels[0];
        Word left[W];
        for (int w = 0; w < W; ++w) left[w] = root.candidates[w];
        for (int placed = 0; placed < n;) {
            Word free[W];
            for (int w = 0; w < W; ++w) free[w] = left[w];
            for (int w = 0; w < W; ++w)
                while (free[w]) {
                    const int bit = __builtin_ctzll(free[w]), v = (w << 6) + bit;
                    left[w] ^= Word(1) << bit;
                    const Word *row = &apart[std::size_t(v) * W];
                    for (int u = w; u < W; ++u) free[u] &= row[u];
                    vertices.push_back(v), ++placed;
                }
        }
        return {vertices.rbegin(), vertices.rend()};
    }

    // The subtree of the i-th child of the root.
    void child(const std::vector<int> &vertices, int i) {
        all();
        for (int j = 0; j < i; ++j) levels[0].candidates[vertices[j] >> 6] ^= Word(1) << (vertices[j] & 63);
        const int v = vertices[i];
        const Word *row = &adjacent[std::size_t(v) * W];
        for (int w = 0; w < W; ++w) levels[1].candidates[w] = levels[0].candidates[w] & row[w];
        path[0] = v;
        expand(1);
    }
};

template <int W> void run(int n, int repeats, int threads) {
    int alone = 0;
    Search<W, int> search(n, alone);
    search.read();
    for (int i = 0; i < repeats; ++i) {
        const std::clock_t start = std::clock();
        const auto begin = std::chrono::steady_clock::now();
        int size = 0;
        long long nodes = 0;
        search.all();
        if (threads == 1) {
            search.nodes = alone = 0;
            search.expand(0);
            size = alone, nodes = search.nodes;
        } else {
            std::atomic<int> best(0);
            const std::vector<int> vertices = search.children();
#pragma omp parallel num_threads(threads) reduction(+ : nodes)
            {
                Search<W, std::atomic<int>> mine(n, best);
                mine.adjacent = search.adjacent, mine.apart = search.apart;
#pragma omp for schedule(dynamic, 1)
                for (int j = 0; j < n; ++j) mine.child(vertices, j);
                nodes += mine.nodes;
            }
            size = best, nodes += 1;
        }
        const double cpu = double(std::clock() - start) / CLOCKS_PER_SEC;
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        std::printf("%d %lld %.6f %.6f\n", size, nodes, cpu, seconds.count());
    }
}

int main(int argc, char **argv) {
    const int repeats = argc > 1 ? std::atoi(argv[1]) : 1;
    const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
    int n = 0;
    if (std::scanf("%d", &n) != 1 || n < 1) return 2;
    switch ((n + 63) / 64) {
    case 1: run<1>(n, repeats, threads); break;
    case 2: run<2>(n, repeats, threads); break;
    case 3: run<3>(n, repeats, threads); break;
    case 4: run<4>(n, repeats, threads); break;
    case 5: run<5>(n, repeats, threads); break;
    case 6: run<6>(n, repeats, threads); break;
    case 7: run<7>(n, repeats, threads); break;
    case 8: run<8>(n, repeats, threads); break;
    default: std::fprintf(stderr, "more than 512 vertices\n"); return 2;
    }
    return 0;
}
