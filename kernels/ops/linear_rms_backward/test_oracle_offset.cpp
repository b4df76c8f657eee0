// The oracle of LinearRmsBackward where all logits of a model share an offset, which cancels in the head's dgrad: it
// accepts what the kernel computes, and names a mistake next to what cancels.
#include "kernels/ops/linear_rms_backward/test_offset.h"
#include "tests/hopper/oracle_plants.h"

using namespace coda;
using namespace coda::test;

namespace {

using Names = std::set<std::string>;

/// The op's operands on the device, under the same views.
class DeviceHead {
  public:
    explicit DeviceHead(const OffsetHead& head) {
        std::vector<std::byte*> addresses;
        for_each_operand(Op(head.op), [&](const char*, const View& view, Access) {
            const auto id = static_cast<std::size_t>(view.buffer);
            if (id >= addresses.size()) addresses.resize(id + 1);
            const auto bytes = static_cast<std::size_t>(view.span_bytes());
            void* memory = nullptr;
            CUDA_CHECK(cudaMalloc(&memory, bytes));
            owned_.emplace_back(memory, cudaFree);
            addresses[id] = static_cast<std::byte*>(memory);
            CUDA_CHECK(cudaMemcpy(memory, head.buffers.memory().address(view), bytes, cudaMemcpyHostToDevice));
        });
        memory_ = Memory(addresses);
    }
    const Memory& memory() const { return memory_; }

  private:
    std::vector<std::unique_ptr<void, cudaError_t (*)(void*)>> owned_;
    Memory memory_;
};

struct Offset {
    double of_logits;
    bool one_column;
};

/// fn(op, memory on the device, oracle). Predictions are uniform.
template <class Fn>
void with_head(const Offset& offset, const Fn& fn) {
    INFO("offset " << offset.of_logits << (offset.one_column ? " of one column" : " of all columns"));
    const OffsetHead head({.tokens = 128,
                           .width = 128,
                           .vocab = 1024,
                           .spread = 0.1,
                           .offset = offset.of_logits,
                           .one_column = offset.one_column});
    const DeviceHead device(head);
    oracle::Oracle oracle;
    fn(head.op, device.memory(), oracle);
}

void scale_row(const LinearRmsBackward& op, const Memory& memory, std::int64_t of_row, double factor) {
    alter(op.scale, memory,
          [&](std::int64_t, std::int64_t row, double value) { return row == of_row ? factor * value : value; });
}

}  // namespace

TEST_CASE("the oracle accepts the head's dgrad where all logits share an offset", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const Offset offset :
         {Offset{100, false}, {200, false}, {300, false}, {1000, false}, {2000, false}, {100, true}, {200, true}})
        with_head(offset, [](const LinearRmsBackward& op, const Memory& memory, oracle::Oracle& oracle) {
            agrees(oracle, memory, op, "by the kernel");
            agrees(oracle, memory, op, "by the host", launch_on_host);
        });
}

TEST_CASE("the oracle names mistakes in the head's dgrad where all logits share an offset", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const Offset offset : {Offset{100, false}, {200, false}, {100, true}, {200, true}})
        with_head(offset, [](const LinearRmsBackward& op, const Memory& memory, oracle::Oracle& oracle) {
            CHECK(named(oracle, memory, op, op) == Names{});
            // One row of 128 had twice its scale when the kernel ran.
            scale_row(op, memory, 5, 2);
            CHECK(named(oracle, memory, op, op, [&] { scale_row(op, memory, 5, 0.5); }) == Names{"dgamma", "dx", "n"});
        });
    for (const Offset offset : {Offset{100, false}, {300, false}, {1000, false}, {100, true}})
        with_head(offset, [](const LinearRmsBackward& op, const Memory& memory, oracle::Oracle& oracle) {
            // One of the two partials has the wrong sign.
            CHECK(named(oracle, memory, op, op, [&] {
                      alter(op.dgamma, memory,
                            [](std::int64_t tile, std::int64_t, double value) { return tile == 0 ? -value : value; });
                  }) == Names{"dgamma"});
        });
}
