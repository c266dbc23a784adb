// The search of MaxClique, written by hand: the same colouring, order and nodes, as a recursion.
//
// Reads from standard input: the number of vertices, then for each vertex, in the order of the
// search, its neighbours as 64-bit words in hexadecimal, lowest word first. Argument: how often to
// search. Prints a line for each search: size, nodes visited, CPU seconds.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

using Word = std::uint64_t;

template <int W> struct Search {
    int n;
    std::vector<Word> adjacent, apart;  // W words a vertex
    struct Level {
        Word candidates[W];
        std::vector<int> order, colours;
    };
    std::vector<Level> levels;
    std::vector<int> path, clique;
    long long nodes = 0;
    int best = 0;

    explicit Search(int vertices)
        : n(vertices), adjacent(std::size_t(n) * W), apart(adjacent), levels(n + 1), path(n + 1) {
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
            best = size;
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

    void run(int repeats) {
        read();
        for (int i = 0; i < repeats; ++i) {
            nodes = best = 0;
            const std::clock_t start = std::clock();
            for (int w = 0; w < W; ++w) {
                const int bits = n - 64 * w;
                levels[0].candidates[w] = bits >= 64 ? ~Word(0) : bits > 0 ? (Word(1) << bits) - 1 : 0;
            }
            expand(0);
            const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
            std::printf("%d %lld %.6f\n", best, nodes, seconds);
        }
    }
};

int main(int argc, char **argv) {
    const int repeats = argc > 1 ? std::atoi(argv[1]) : 1;
    int n = 0;
    if (std::scanf("%d", &n) != 1 || n < 1) return 2;
    switch ((n + 63) / 64) {
    case 1: Search<1>(n).run(repeats); break;
    case 2: Search<2>(n).run(repeats); break;
    case 3: Search<3>(n).run(repeats); break;
    case 4: Search<4>(n).run(repeats); break;
    case 5: Search<5>(n).run(repeats); break;
    case 6: Search<6>(n).run(repeats); break;
    case 7: Search<7>(n).run(repeats); break;
    case 8: Search<8>(n).run(repeats); break;
    default: std::fprintf(stderr, "more than 512 vertices\n"); return 2;
    }
    return 0;
}
