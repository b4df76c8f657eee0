// A pool of threads whose results come out in the order in which the work went in.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace coda {

/// One thread submits and takes; `threads` others work. What is submitted and not yet taken weighs at most `budget`, or
/// is only one item.
template <class In, class Out>
class OrderedWorkers {
  public:
    using Work = std::function<Out(In&)>;

    /// `make_work` is called once for every thread, for what a thread needs of its own.
    OrderedWorkers(std::size_t threads, std::int64_t budget, const std::function<Work()>& make_work) : budget_(budget) {
        try {
            for (std::size_t i = 0; i < threads; ++i) {
                threads_.emplace_back([this, work = make_work()] { run(work); });
            }
        } catch (...) {  // no memory, or the system has no more threads
            stop();
            throw;
        }
    }
    ~OrderedWorkers() { stop(); }
    OrderedWorkers(const OrderedWorkers&) = delete;
    OrderedWorkers& operator=(const OrderedWorkers&) = delete;

    bool has_room(std::int64_t weight) const { return order_.empty() || weight_ + weight <= budget_; }

    void submit(In item, std::int64_t weight) {
        order_.push_back(std::make_unique<Entry>(Entry{.in = std::move(item), .weight = weight}));
        weight_ += weight;
        {
            const std::lock_guard lock(mutex_);
            todo_.push_back(order_.back().get());
        }
        todo_changed_.notify_one();
    }

    bool empty() const { return order_.empty(); }
    bool oldest_is_done() const {
        const std::lock_guard lock(mutex_);
        return !order_.empty() && order_.front()->done;
    }

    /// The result of the oldest item; waits for it, and rethrows what its work threw.
    Out take() {
        const std::unique_ptr<Entry> entry = std::move(order_.front());
        order_.pop_front();
        weight_ -= entry->weight;
        std::unique_lock lock(mutex_);
        done_changed_.wait(lock, [&] { return entry->done; });
        if (entry->error) std::rethrow_exception(entry->error);
        return std::move(entry->out);
    }

  private:
    struct Entry {
        In in;
        Out out{};
        std::exception_ptr error{};
        std::int64_t weight = 0;
        bool done = false;
    };

    /// Ends the threads after the work that they have begun.
    void stop() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        todo_changed_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    void run(const Work& work) {
        std::unique_lock lock(mutex_);
        for (;;) {
            todo_changed_.wait(lock, [&] { return stop_ || !todo_.empty(); });
            if (stop_) return;
            Entry* entry = todo_.front();
            todo_.pop_front();
            lock.unlock();
            try {
                entry->out = work(entry->in);
            } catch (...) {
                entry->error = std::current_exception();
            }
            entry->in = {};
            lock.lock();
            entry->done = true;
            done_changed_.notify_one();
        }
    }

    const std::int64_t budget_;
    std::int64_t weight_ = 0;                   // of order_
    std::deque<std::unique_ptr<Entry>> order_;  // of the submitting thread
    mutable std::mutex mutex_;                  // for all below and Entry::done
    std::condition_variable todo_changed_, done_changed_;
    std::deque<Entry*> todo_;
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace coda
