// SPDX-License-Identifier: MIT

// Limiters of Go at the work that bench/costs gives to weir, one round of it: bench/run --peers
// builds it against the sources that the distribution packages, and runs it round by round.
// The method is that of bench/costs.c and bench/costs_two.c.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sort"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/juju/ratelimit"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const (
	batch   = 1000
	share   = 2000
	samples = 30
	warmUp  = 2
	block   = 16
)

type figure struct {
	Name   string  `json:"name"`
	Min    float64 `json:"min_ns"`
	Median float64 `json:"median_ns"`
	P99    float64 `json:"p99_ns"`
	Max    float64 `json:"max_ns"`
}

func require(condition bool, what string) {
	if !condition {
		fmt.Fprintln(os.Stderr, "peers: not so:", what)
		os.Exit(1)
	}
}

// ---- processors ----

type mask [16]uint64 // the size that Go itself uses

var allowed []int

func lookAtProcessors() {
	var set mask
	n, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(set),
		uintptr(unsafe.Pointer(&set)))
	require(errno == 0 && n > 0, "sched_getaffinity")
	for i := 0; i < len(set)*64; i++ {
		if set[i/64]&(1<<(i%64)) != 0 {
			allowed = append(allowed, i)
		}
	}
}

// Binds the goroutine to a thread, and the thread to a processor, counted from 0.
func pin(processor int) {
	var set mask
	runtime.LockOSThread()
	set[allowed[processor]/64] = 1 << (allowed[processor] % 64)
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(set),
		uintptr(unsafe.Pointer(&set)))
	require(errno == 0, "sched_setaffinity")
}

// ---- the work ----

type work struct {
	name string
	loop func(n int)
	ns   []float64 // alone
	two  []float64
}

func allowLoop(limiter *rate.Limiter, wanted bool) func(n int) {
	return func(n int) {
		for ; n > 0; n-- {
			require(limiter.Allow() == wanted, "Allow")
		}
	}
}

func bucketLoop(bucket *ratelimit.Bucket, wanted int64) func(n int) {
	return func(n int) {
		for ; n > 0; n-- {
			require(bucket.TakeAvailable(1) == wanted, "TakeAvailable")
		}
	}
}

func semaphoreLoop(weighted *semaphore.Weighted) func(n int) {
	return func(n int) {
		for ; n > 0; n-- {
			require(weighted.TryAcquire(1), "TryAcquire")
			weighted.Release(1)
		}
	}
}

func works() []*work {
	spent := rate.NewLimiter(rate.Every(24*time.Hour), 1)
	require(spent.Allow(), "Allow")
	empty := ratelimit.NewBucket(24*time.Hour, 1)
	require(empty.TakeAvailable(1) == 1, "TakeAvailable")
	return []*work{
		{name: "x/time/rate: Allow", loop: allowLoop(rate.NewLimiter(1e9, 1e9), true)},
		{name: "x/time/rate: Allow, refused", loop: allowLoop(spent, false)},
		{name: "juju/ratelimit: TakeAvailable",
			loop: bucketLoop(ratelimit.NewBucket(1, 1e9), 1)},
		{name: "juju/ratelimit: TakeAvailable, refused", loop: bucketLoop(empty, 0)},
		{name: "x/sync/semaphore: TryAcquire + Release",
			loop: semaphoreLoop(semaphore.NewWeighted(1000))},
	}
}

func (w *work) alone() float64 {
	begin := time.Now()
	w.loop(batch)
	return float64(time.Since(begin).Nanoseconds()) / batch
}

// Measures one goroutine that does its share while another repeats that work until its end: the time
// of one of them per operation, over both.
func (w *work) against(done, over *uint64, left chan bool) float64 {
	go func() {
		pin(1)
		for atomic.LoadUint64(over) == 0 {
			w.loop(block)
			atomic.AddUint64(done, block)
		}
		left <- true
	}()
	for atomic.LoadUint64(done) == 0 {
		runtime.Gosched()
	}
	before := atomic.LoadUint64(done)
	begin := time.Now()
	for i := 0; i < share; i += block {
		w.loop(block)
	}
	ns := float64(time.Since(begin).Nanoseconds())
	other := atomic.LoadUint64(done) - before
	atomic.StoreUint64(over, 1)
	<-left
	return 2 * ns / float64(share+other)
}

// ---- sums ----

func quantile(sorted []float64, part float64) float64 {
	i := int(part*float64(len(sorted))+0.999999) - 1
	if i < 0 {
		i = 0
	}
	return sorted[i]
}

func report(name string, ns []float64) {
	sort.Float64s(ns)
	line, err := json.Marshal(figure{name, ns[0], quantile(ns, 0.5), quantile(ns, 0.99),
		ns[len(ns)-1]})
	require(err == nil, "json")
	fmt.Println(string(line))
}

func main() {
	lookAtProcessors()
	pin(0)
	all := works()
	for i := 0; i < warmUp+samples; i++ {
		for _, w := range all {
			ns := w.alone()
			if i >= warmUp {
				w.ns = append(w.ns, ns)
			}
		}
	}
	for i := 0; i < samples && len(allowed) > 1; i++ {
		for _, w := range all {
			var counters [24]uint64 // each on a cache line of its own
			w.two = append(w.two, w.against(&counters[0], &counters[16], make(chan bool, 1)))
		}
	}
	for _, w := range all {
		report(w.name, w.ns)
	}
	for _, w := range all {
		if len(w.two) > 0 {
			report("two: "+w.name, w.two)
		}
	}
}
