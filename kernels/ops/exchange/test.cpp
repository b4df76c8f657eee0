// The ops between ranks: what they ask the peers for, a rank's own part, and what they refuse. tests/engine moves
// bytes.
#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"

using namespace coda;
using namespace coda::test;

namespace {

using How = StartExchange::How;

class Recorded : public Peers {
  public:
    void start(std::int32_t transfer, CUstream_st*) override { calls += "start " + std::to_string(transfer) + " "; }
    void finish(std::int32_t transfer, CUstream_st*) override { calls += "finish " + std::to_string(transfer) + " "; }
    std::string calls;
};

/// Elements [first, first + count) of a vector.
View piece(View vector, std::int64_t first, std::int64_t count) {
    vector.offset += first * size_of(vector.dtype);
    vector.cols = vector.ld = count;
    return vector;
}

StartExchange start(How how, const View& source, const View& target, std::int32_t rank = 1) {
    StartExchange op;
    op.source = source;
    op.target = target;
    op.how = how;
    op.ranks = 3;
    op.rank = rank;
    op.transfer = 7;
    return op;
}

StartExchange in_place(const View& whole, std::int32_t rank) {
    const std::int64_t part = whole.cols / 3;
    StartExchange op = start(How::gather, piece(whole, rank * part, part), {}, rank);
    if (rank > 0) op.before = piece(whole, 0, rank * part);
    if (rank < 2) op.after = piece(whole, (rank + 1) * part, (2 - rank) * part);
    return op;
}

}  // namespace

TEST_CASE("an exchange is asked of the peers by its number") {
    Buffers buffers;
    Recorded peers;
    const Memory memory = buffers.memory(&peers);
    const View target = buffers.matrix(DType::f32, 3, 8);
    cpu::run(start(How::scatter, buffers.random(DType::f32, 1, 24), target), memory);
    FinishExchange finish;
    finish.target = target;
    finish.transfer = 7;
    cpu::run(finish, memory);
    CHECK(peers.calls == "start 7 finish 7 ");
    CHECK_THROWS_WITH(cpu::run(finish, buffers.memory()), "an op between ranks ran where there is only one");
}

TEST_CASE("a gather puts a rank's own part into its row, and in place leaves it where it is") {
    Buffers buffers;
    Recorded peers;
    const View source = buffers.random(DType::f32, 1, 8), target = buffers.matrix(DType::f32, 3, 8);
    const View whole = buffers.random(DType::f32, 1, 24);
    const std::string before = buffers.bits(whole);
    cpu::run(start(How::gather, source, target), buffers.memory(&peers));
    CHECK((buffers.values(target.row_slice(1, 1)) == buffers.values(source)));
    for (const std::int32_t rank : {0, 1, 2}) cpu::run(in_place(whole, rank), buffers.memory(&peers));
    CHECK((buffers.bits(whole) == before));
}

TEST_CASE("an exchange names the operand that does not fit") {
    Buffers buffers;
    const View source = buffers.random(DType::f32, 1, 24), target = buffers.matrix(DType::f32, 3, 8);
    const auto refusal = [&](const StartExchange& op) -> std::string {
        try {
            cpu::run(op, buffers.memory());
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    CHECK(refusal(start(How::scatter, piece(source, 0, 23), target)) ==
          "StartExchange: operand source is (1, 23), expected (1, 21)");
    CHECK(refusal(start(How::scatter, source, target.row_slice(0, 1))) ==
          "StartExchange: operand target is (1, 8), expected (3, 8)");
    CHECK(refusal(start(How::scatter, source, {})) == "StartExchange: operand target is missing");
    CHECK(refusal(start(How::gather, piece(source, 0, 8), buffers.matrix(DType::f32, 3, 8, 9))) ==
          "StartExchange: operand target has gaps between its rows");
    CHECK(refusal(start(How::scatter, source, target, 3)) == "StartExchange: rank 3 of 3 exchanges nothing");
    StartExchange op = in_place(source, 1);
    op.after = {};
    CHECK(refusal(op) == "StartExchange: operand after is missing");
    op = in_place(source, 0);
    op.before = piece(source, 0, 8);
    CHECK(refusal(op) == "StartExchange: operand before must be absent");
    op = in_place(source, 1);
    op.before.offset += 4;
    CHECK(refusal(op) == "StartExchange: operand before does not lie next to source");
    op = in_place(source, 1);
    op.target = target;
    CHECK(refusal(op) == "StartExchange: a target and parts in place");
}
