// SPDX-License-Identifier: MIT

// A limiter of C++ at the work that bench/costs gives to weir, one round of it: bench/run --peers
// builds it with the compiler of the distribution, and runs it round by round.
// The method is that of bench/costs.c and bench/costs_two.c.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

namespace
{

constexpr unsigned BATCH = 1000, SHARE = 2000, SAMPLES = 30, WARM_UP = 2, BLOCK = 16;

void require(bool condition, const char *what)
{
    if (!condition) {
        std::fprintf(stderr, "peers: not so: %s\n", what);
        std::_Exit(1);
    }
}

// ---- processors ----

std::vector<int> allowed_processors()
{
    std::vector<int> allowed;
    cpu_set_t set;

    require(sched_getaffinity(0, sizeof(set), &set) == 0, "sched_getaffinity");
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            allowed.push_back(i);
    return allowed;
}

void pin(int processor)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    require(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

// ---- the work ----

struct work {
    std::string name;
    std::function<void(unsigned n)> run; // repeats it `n` times
    std::vector<double> alone, two;
};

std::vector<work> all_works()
{
    static std::counting_semaphore<> semaphore(1000);
    auto semaphore_loop = [](unsigned n) {
        while (n-- > 0) {
            require(semaphore.try_acquire(), "try_acquire");
            semaphore.release();
        }
    };

    return {{"counting_semaphore: try_acquire + release", semaphore_loop, {}, {}}};
}

double now_ns()
{
    std::chrono::duration<double, std::nano> now =
        std::chrono::steady_clock::now().time_since_epoch();

    return now.count();
}

double alone(const work &work)
{
    double begin = now_ns();

    work.run(BATCH);
    return (now_ns() - begin) / BATCH;
}

// Measures a thread that does its share while another repeats that work until its end: the time of
// one of them per operation, over both.
double against(const work &work, int there)
{
    alignas(64) std::atomic<unsigned long> done = 0;
    alignas(64) std::atomic<bool> over = false;
    std::jthread second([&] {
        pin(there);
        while (!over.load(std::memory_order_relaxed)) {
            work.run(BLOCK);
            done.fetch_add(BLOCK, std::memory_order_relaxed);
        }
    });

    while (done.load(std::memory_order_relaxed) == 0)
        std::this_thread::yield();
    unsigned long before = done.load(std::memory_order_relaxed);
    double begin = now_ns();
    for (unsigned i = 0; i < SHARE; i += BLOCK)
        work.run(BLOCK);
    double ns = now_ns() - begin;
    unsigned long other = done.load(std::memory_order_relaxed) - before;
    over.store(true, std::memory_order_relaxed);
    return 2 * ns / static_cast<double>(SHARE + other);
}

// ---- sums ----

double quantile(const std::vector<double> &sorted, double part)
{
    double rank = std::ceil(part * static_cast<double>(sorted.size()));

    return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

void report(const std::string &name, std::vector<double> &ns)
{
    std::sort(ns.begin(), ns.end());
    std::printf("{\"name\": \"%s\", \"min_ns\": %.2f, \"median_ns\": %.2f, \"p99_ns\": %.2f, "
                "\"max_ns\": %.2f}\n",
                name.c_str(), ns.front(), quantile(ns, 0.5), quantile(ns, 0.99), ns.back());
}

} // namespace

int main()
{
    std::vector<int> processors = allowed_processors();
    std::vector<work> works = all_works();

    pin(processors[0]);
    for (unsigned i = 0; i < WARM_UP + SAMPLES; i++)
        for (work &work : works) {
            double ns = alone(work);

            if (i >= WARM_UP)
                work.alone.push_back(ns);
        }
    for (unsigned i = 0; i < SAMPLES && processors.size() > 1; i++)
        for (work &work : works)
            work.two.push_back(against(work, processors[1]));
    for (work &work : works)
        report(work.name, work.alone);
    for (work &work : works)
        if (!work.two.empty())
            report("two: " + work.name, work.two);
    return 0;
}
