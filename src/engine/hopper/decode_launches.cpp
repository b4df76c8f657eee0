#include "src/engine/hopper/decode_launches.h"

#include <thread>
#include <utility>

#include "kernels/hopper/decode/launch.h"
#include "kernels/hopper/decode/plan/lower.h"
#include "kernels/hopper/sm90/device.h"
#include "src/core/decoder_options.h"

namespace coda {

namespace {

static_assert(kMostSequences == hopper::decode::kMaxBatch);
static_assert(kLookupRows == hopper::decode::kOctet);

class OwnEvent {
  public:
    OwnEvent() { CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
    ~OwnEvent() { cudaEventDestroy(event_); }
    OwnEvent(const OwnEvent&) = delete;
    OwnEvent& operator=(const OwnEvent&) = delete;
    cudaEvent_t get() const { return event_; }

  private:
    cudaEvent_t event_{};
};

class FusedDecodeLaunches : public DecodeLaunches {
  public:
    FusedDecodeLaunches(hopper::decode::DecodePlan plan, const hopper::decode::LaunchOptions& options,
                        cudaStream_t stream)
        : fused_(std::move(plan), options), most_steps_(options.most_steps), stream_(stream) {}

    int most_steps() const override { return most_steps_; }

    DecodedSteps run(int steps, const std::function<bool()>& cancelled) override {
        fused_.launch(steps, stream_);
        CUDA_CHECK(cudaEventRecord(done_.get(), stream_));
        const bool asked = wait(cancelled);
        fused_.finish(stream_);
        if (asked) fused_.resume();
        return {.tokens = fused_.made(steps), .states = states()};
    }

  private:
    /// Whether the launch was asked to end.
    bool wait(const std::function<bool()>& cancelled) {
        bool asked = false;
        cudaError_t status = cudaSuccess;
        while ((status = cudaEventQuery(done_.get())) == cudaErrorNotReady) {
            if (!asked && cancelled()) {
                fused_.cancel();
                asked = true;
            }
            std::this_thread::yield();
        }
        CUDA_CHECK(status);
        return asked;
    }

    std::vector<std::int32_t> states() const {
        const hopper::decode::Operands& operands = fused_.plan().operands;
        std::vector<std::int32_t> states(static_cast<std::size_t>(operands.shape.batch));
        CUDA_CHECK(
            cudaMemcpy(states.data(), operands.choice.state, states.size() * sizeof states[0], cudaMemcpyDeviceToHost));
        return states;
    }

    hopper::decode::FusedDecode fused_;
    int most_steps_;
    cudaStream_t stream_;
    OwnEvent done_;
};

}  // namespace

DecodeLaunchesOffer offer_decode_launches(const Schedule& decode, const Memory& memory, double watchdog_seconds,
                                          cudaStream_t stream) {
    const hopper::decode::LaunchOptions options{.watchdog_seconds = watchdog_seconds};
    hopper::decode::DecodePlan plan;
    try {
        plan = hopper::decode::lower(decode, memory, hopper::multiprocessors());
        layout_of(plan);
    } catch (const Error& error) {
        return {.problem = error.what()};
    }
    return {.launches = std::make_unique<FusedDecodeLaunches>(std::move(plan), options, stream)};
}

}  // namespace coda
