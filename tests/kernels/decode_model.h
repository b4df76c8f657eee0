// A model of the fused decode kernel's waits: every warp of every SM as a coroutine that waits where the kernel does,
// for the same words, barriers and counters, over the same index arithmetic. What a warp computes is left out; that it
// reads what it needs, and overwrites nothing that is still needed, is checked.
//
// The test decides who continues, so a warp may come as late as it likes, which few runs on a GPU would show.
#pragma once

#include <coroutine>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/hopper/decode/plan/attention_work.h"
#include "kernels/hopper/decode/plan/decode_plan.h"

namespace coda::test {

/// A warp that stands at a wait.
class Warp {
  public:
    struct promise_type {
        std::function<bool()> ready = [] { return true; };
        const char* awaited = "its start";
        Warp get_return_object() { return Warp(std::coroutine_handle<promise_type>::from_promise(*this)); }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { throw; }
    };
    using Handle = std::coroutine_handle<promise_type>;

    explicit Warp(Handle handle) : handle_(handle) {}
    Warp(Warp&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), left_(other.left_) {}
    Warp& operator=(Warp&&) = delete;
    ~Warp() {
        if (handle_) handle_.destroy();
    }

    bool done() const { return left_ || handle_.done(); }
    /// Ends where it waits.
    void leave() { left_ = true; }
    const char* awaited() const { return handle_.promise().awaited; }
    /// Goes on to its next wait, if this one is over.
    bool go_on() {
        if (done() || !handle_.promise().ready()) return false;
        handle_.resume();
        return true;
    }

  private:
    Handle handle_;
    bool left_ = false;
};

/// co_await Until(what, condition)
class Until {
  public:
    Until(const char* what, std::function<bool()> ready) : what_(what), ready_(std::move(ready)) {}
    bool await_ready() const { return false; }
    void await_suspend(Warp::Handle warp) {
        warp.promise().awaited = what_;
        warp.promise().ready = std::move(ready_);
    }
    void await_resume() const {}

  private:
    const char* what_;
    std::function<bool()> ready_;
};

/// An mbarrier: a wait sees the parity of its phase and nothing else.
class Phases {
  public:
    explicit Phases(int arrivals = 1) : arrivals_(arrivals), pending_(arrivals) {}
    void arrive(int count = 1) {
        pending_ -= count;
        close();
    }
    void arrive_expect() {
        bytes_ = true;
        arrive();
    }
    void land() {
        bytes_ = false;
        close();
    }
    bool passed(std::int64_t parity) const { return (phase_ & 1) != (parity & 1); }

  private:
    void close() {
        if (pending_ != 0 || bytes_) return;
        pending_ = arrivals_;
        ++phase_;
    }

    int arrivals_, pending_;
    bool bytes_ = false;
    std::int64_t phase_ = 0;
};

struct ModelOptions {
    std::vector<int> lengths;  // of the sequences at the start; 0: does not run
    std::vector<bool> greedy;
    std::vector<int> last_steps;  // the step that ends each sequence; empty: none ends
    int steps = 3;
    unsigned seed = 1;
    /// The kernel's mistake of its first run on a GPU, for a test of the model: the attention of an idle sequence is
    /// handed over as zeros.
    bool idle_words = false;
    std::vector<std::pair<int, int>> sleepers;  // SMs and warps that continue only when no other can
    int stop_after = -1;                        // the token whose close says that all are to stop; -1: none
    /// A mistake for another test: a warp that comes a step late takes the stop of the next step for its own.
    bool any_stop = false;
    /// And that no sequence runs any more.
    bool any_end = false;
    /// And another: before a layer, warps wait until all SMs have finished the one this many layers before; 0: no wait.
    int arrivals_before = 1;
    /// And one that no order of the warps shows: epilogue warps do not wait for arrivals.
    bool epilogue_waits = true;
    /// A mistake again: consumer warps do not wait until their SM's epilogue warps have read attention's sums.
    bool consumers_wait = true;
    /// And another: of the epilogue warps that both read an entry of sums, they wait for the first only.
    bool awaits_both = true;
    /// And another: a warp stores in the input of its pair's other SM before that is lent.
    bool awaits_loan = true;
    /// Whether a warp must have seen the arrivals that order others' accesses to a Lamport buffer before its own.
    bool checks_order = true;
};

class DecodeModel {
  public:
    DecodeModel(hopper::decode::DecodePlan plan, ModelOptions options);
    ~DecodeModel();
    DecodeModel(const DecodeModel&) = delete;
    DecodeModel& operator=(const DecodeModel&) = delete;

    /// Runs all warps to their ends. Of those that could continue it takes any, but `late` ones (a share of all) only
    /// when no other can. Throws Error where none can continue, and where a warp reads or overwrites the wrong thing.
    void run(double late);

  private:
    struct Sm;
    struct Visible {
        const DecodeModel* model;
        int step;
        int operator()(int sequence) const { return model->visible(sequence, step); }
    };

    /// With the same warp of the pair's other SM: a warp lends it its input, stores a slice in that one's, and checks
    /// which slice has come to its own.
    void lend(Sm& sm, int warp);
    void deliver(Sm& sm, int warp, std::int64_t what);
    void receive(Sm& sm, int warp, std::int64_t what) const;

    Warp consumer(Sm& sm, int warp);
    Warp epilogue(Sm& sm, int warp);
    Warp producer(Sm& sm);
    Warp copies(Sm& sm);

    int planned(int sequence, int step) const;
    int visible(int sequence, int step) const;
    hopper::decode::AttentionTiles<Visible> attention_tiles(int step) const;
    std::uint32_t epoch(int step, int op) const;
    int ops() const { return static_cast<int>(plan_.ops.size()); }
    /// Until words first to first + count - 1 have this epoch. A later one is an error: its content is gone.
    Until words(const char* what, std::int64_t first, std::int64_t count, std::uint32_t epoch);
    Until token_words(int step);
    /// After token_words(): whether this warp leaves, and the SM's others where they wait.
    bool leaves(Sm& sm, int step) const;
    bool runs_after(int sequence, int step) const;
    void publish(std::int64_t first, std::int64_t count, std::uint32_t epoch);
    struct TileResult {
        int step, op, tile, sequence;
    };
    void publish_tile(const TileResult& of, std::uint32_t seen, std::vector<std::size_t>& pending);
    /// Columns of a sequence in Lamport buffers.
    struct LamportColumns {
        std::int64_t vector;  // Exchange
        int width, copy, sequence, first, columns;
    };
    int buffer_of(int step, int op) const {
        return hopper::decode::lamport_buffer(hopper::decode::layers_of(ops()), step, op);
    }
    /// The index of a pair of columns in lamport_.
    std::size_t in_lamport(const LamportColumns& of, int column) const;
    /// Also empties the columns in the copy of two layers later: `pending`, until some time before the warp's arrival.
    /// `seen`: the epoch in which, as the warp knows, all SMs had arrived.
    void store_lamport(const LamportColumns& to, std::uint32_t epoch, std::uint32_t seen,
                       std::vector<std::size_t>& pending);
    void land(std::vector<std::size_t>& pending);
    Until lamport(LamportColumns of, std::uint32_t epoch, std::uint32_t seen);
    /// Whether a warp waits for arrivals here, and then the epoch of the op that it waits for.
    bool awaits_arrivals(int op) const;
    std::uint32_t awaited_arrivals(std::uint32_t now, int op) const;
    Until arrivals(std::uint32_t epoch);
    [[noreturn]] void fail(const std::string& what) const;

    const hopper::decode::DecodePlan plan_;
    const ModelOptions options_;
    const hopper::decode::Layout layout_;
    const hopper::decode::Exchange exchange_;
    std::vector<Sm> sms_;
    std::vector<std::uint32_t> words_;       // epochs
    std::vector<std::uint32_t> lamport_;     // of every 4 bytes of the exchange: the epoch, or kEmpty
    std::vector<char> emptying_;             // they will be empty, sooner or later
    std::vector<std::uint32_t> emptied_in_;  // the epoch of the last store of kEmpty
    std::vector<std::uint32_t> arrivals_;
    std::uint32_t stop_ = 0;  // the epoch of the close that said so
    std::mt19937 random_;
};

}  // namespace coda::test
