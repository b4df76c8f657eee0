// The steps by which a schedule of several ranks exchanges what they have.
#pragma once

#include <string>
#include <vector>

#include "src/core/buffers.h"
#include "src/model/division.h"
#include "src/model/tensors/step_list.h"

namespace coda {

/// Issues exchanges and numbers them. Targets are buffers of their own, or those that are given.
class Exchanges {
  public:
    /// `transfers`: how many there are so far, in all schedules.
    Exchanges(const Division& division, BufferTable& buffers, std::int32_t& transfers)
        : division_(division), buffers_(buffers), transfers_(transfers) {}

    const Division& division() const { return division_; }
    BufferTable& buffers() const { return buffers_; }

    /// What has started.
    struct UnderWay {
        std::string name;
        View source;  // of a scatter
        View target;
        std::int32_t transfer = 0;
    };

    /// Part r of `source` goes to rank r. `target`: (N, n), overwritten.
    UnderWay scatter(StepList& step, const std::string& name, const View& source, View& target);
    /// `source`, (1, n), goes to all.
    UnderWay gather(StepList& step, const std::string& name, const View& source);
    /// The rank's own part of `whole`, (1, N n), has its value, and goes to all; the others follow.
    UnderWay gather_in_place(StepList& step, const std::string& name, const View& whole);
    /// What has arrived.
    View finish(StepList& step, const UnderWay& under_way);

    /// Finishes a gather of `value` and makes all ranks' values of it into one.
    void reduce(StepList& step, const UnderWay& gathered, ReduceParts::How how, View& value);

  private:
    StartExchange start(StartExchange::How how, const View& source);

    const Division& division_;
    BufferTable& buffers_;
    std::int32_t& transfers_;
};

/// Puts what waits for each of `arriving` into a list that reads it: before the first step that touches its target, and
/// behind the step that begins it if that is in this list. Returns those that no step waits for. Where the list did not
/// begin the exchange, the target has its new value from the list's beginning on.
std::vector<Exchanges::UnderWay> receive_where_read(const std::vector<Exchanges::UnderWay>& arriving,
                                                    Schedule& schedule);

/// Puts the exchange of the gradients into a pass that makes them: each bucket is scattered after its last gradient has
/// been written, while the steps that follow run, and its sum lands in the rank's own part. A bucket waits for the next
/// attention step, which measured faster than sending it at once, unless more buckets wait than the attention steps
/// that are left can take. Two buckets are under way at most. `squares`: of SquareSums, which gets the sums of the
/// rank's parts, most of them while the last buckets are under way.
void exchange_gradients(Exchanges& exchanges, const View& gradient, View squares, Schedule& schedule);

}  // namespace coda
