#include "src/library/callback_team.h"

#include <omp.h>

#include "src/core/errors.h"
#include "src/core/program.h"

namespace coda {

CallbackTeam::CallbackTeam(const coda_team& team) : team_(team) {
    if (team.abi != CODA_ABI)
        throw UsageError(text("coda_team.abi is ", team.abi, ", and this library has ABI ", CODA_ABI,
                              ": build the caller with the coda.h of the library that it loads"));
    if (team.ranks < 1 || team.rank < 0 || team.rank >= team.ranks)
        throw UsageError(text("coda_team: rank ", team.rank, " of ", team.ranks, " ranks"));
    if (team.threads > 0) omp_set_num_threads(team.threads);
}

std::byte* CallbackTeam::memory(Where where, std::int64_t bytes) {
    void* base = nullptr;
    on_gpu_ = where == Where::gpu;
    check(team_.memory(team_.context, where == Where::gpu ? CODA_GPU : CODA_HOST, bytes, &base));
    return static_cast<std::byte*>(base);
}

void CallbackTeam::set_transfers(std::vector<Transfer> transfers) {
    std::vector<coda_transfer> plain;
    for (const Transfer& transfer : transfers) {
        const bool scatters = transfer.how == StartExchange::How::scatter;
        plain.push_back({scatters ? CODA_SCATTER : CODA_GATHER, transfer.source, transfer.target, transfer.bytes});
    }
    check(team_.set_transfers(team_.context, plain.data(), static_cast<std::int32_t>(plain.size())));
}

std::vector<std::byte> CallbackTeam::share(std::span<const std::byte> mine) {
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(ranks()));
    check(team_.share(team_.context, mine.data(), static_cast<std::int64_t>(mine.size()), all.data()));
    return all;
}

void CallbackTeam::start(std::int32_t transfer, CUstream_st* stream) {
    check(team_.start(team_.context, transfer, stream));
}

void CallbackTeam::finish(std::int32_t transfer, CUstream_st* stream) {
    check(team_.finish(team_.context, transfer, stream));
}

void CallbackTeam::leave(const std::exception& error) {
    if (dynamic_cast<const AgreedError*>(&error) == nullptr) team_.leave(team_.context, error.what());
}

void CallbackTeam::check(int failure) const {
    if (failure == 0) return;
    const std::string why = team_.why(team_.context);
    if (on_gpu_) abandon_program(ranks() == 1 ? why : text("rank ", rank(), ": ", why));
    throw LostRankError(why);
}

}  // namespace coda
