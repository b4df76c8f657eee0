#include "src/engine/thread_team.h"

#include <omp.h>

#include <exception>
#include <thread>
#include <utility>

#include "kernels/core/error.h"
#include "src/engine/rank_memory.h"

namespace coda {

namespace {

/// What the threads have in common.
class Group {
  public:
    explicit Group(int ranks) : memories(static_cast<std::size_t>(ranks)), shared(static_cast<std::size_t>(ranks)) {}

    /// Waits until all ranks have called. What they wrote before is seen by all afterwards.
    void barrier() {
        std::unique_lock lock(mutex_);
        require_all_here();
        const std::uint64_t round = round_;
        if (++here_ == memories.size()) {
            here_ = 0;
            ++round_;
            changed_.notify_all();
            return;
        }
        changed_.wait(lock, [&] { return round_ != round || gone_; });
        if (round_ == round) require_all_here();
    }

    /// A rank leaves, and those that wait or come later are told why.
    void leave(int rank, const std::string& why) {
        const std::lock_guard lock(mutex_);
        if (!gone_) gone_ = text("rank ", rank, " has stopped: ", why);
        changed_.notify_all();
    }

    // Of every rank.
    std::vector<std::unique_ptr<RankMemory>> memories;
    std::vector<std::vector<std::byte>> shared;

  private:
    void require_all_here() const {
        if (gone_) throw LostRankError(*gone_);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t here_ = 0;
    std::uint64_t round_ = 0;
    std::optional<std::string> gone_;
};

class ThreadTeam : public Team {
  public:
    ThreadTeam(Group& group, int rank) : group_(group), rank_(rank) {}

    int rank() const override { return rank_; }
    int ranks() const override { return static_cast<int>(group_.memories.size()); }
    int device() const override { return 0; }

    std::byte* memory(Where where, std::int64_t bytes) override {
        mine() = where == Where::gpu ? make_gpu_memory(bytes) : make_host_memory(bytes);
        return mine()->base();
    }

    void set_transfers(std::vector<Transfer> transfers) override {
        transfers_ = std::move(transfers);
        group_.barrier();  // all memories are there
    }

    std::vector<std::byte> share(std::span<const std::byte> mine) override {
        group_.shared[static_cast<std::size_t>(rank_)].assign(mine.begin(), mine.end());
        group_.barrier();
        std::vector<std::byte> all;
        for (const std::vector<std::byte>& each : group_.shared) all.insert(all.end(), each.begin(), each.end());
        group_.barrier();
        return all;
    }

    void start(std::int32_t, CUstream_st*) override {}

    /// Each rank fetches what it is to have when all have come as far, and continues when all have it.
    void finish(std::int32_t transfer, CUstream_st* stream) override {
        const Transfer& moved = transfers_.at(static_cast<std::size_t>(transfer));
        const bool scatters = moved.how == StartExchange::How::scatter;
        using Mark = RankMemory::Mark;
        mine()->set(Mark::offered, stream);
        group_.barrier();
        for (int from = 0; from < ranks(); ++from) {
            if (!scatters && from == rank_) continue;
            const RankMemory& other = *group_.memories[static_cast<std::size_t>(from)];
            const std::int64_t source =
                scatters ? moved.source + rank_ * moved.bytes : moved.target + from * moved.bytes;
            other.wait(Mark::offered, stream);
            mine()->copy(mine()->base() + moved.target + from * moved.bytes, other.base() + source, moved.bytes,
                         stream);
        }
        mine()->set(Mark::taken, stream);
        group_.barrier();
        for (const auto& other : group_.memories) other->wait(Mark::taken, stream);
    }

  private:
    std::unique_ptr<RankMemory>& mine() { return group_.memories[static_cast<std::size_t>(rank_)]; }

    Group& group_;
    int rank_;
    std::vector<Transfer> transfers_;
};

}  // namespace

void run_thread_team(int ranks, int threads, const std::function<void(Team&)>& body) {
    Group group(ranks);
    std::mutex mutex;
    std::exception_ptr first;
    const auto run = [&](int rank) {
        omp_set_num_threads(threads);
        try {
            ThreadTeam team(group, rank);
            body(team);
        } catch (const std::exception& error) {
            {
                const std::lock_guard lock(mutex);
                if (!first) first = std::current_exception();
            }
            group.leave(rank, error.what());
        }
    };
    std::vector<std::thread> others;
    for (int rank = 0; rank < ranks; ++rank) others.emplace_back(run, rank);
    for (std::thread& other : others) other.join();
    if (first) std::rethrow_exception(first);
}

}  // namespace coda
