// One op being checked: its operands, the work space, GEMMs in bands of rows, and the differences found so far. Host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/memory.h"
#include "kernels/oracle/bands.h"
#include "kernels/oracle/capture.h"
#include "kernels/oracle/cublaslt.h"
#include "kernels/oracle/report.h"

namespace coda::oracle {

/// Sums over the compared elements of one operand.
struct ErrorSums {
    double difference = 0, expected = 0;  // of squares
    double largest_difference = 0, largest_expected = 0;
};

/// The device memory in which checks work, and cuBLASLt for their GEMMs.
class WorkSpace {
  public:
    static constexpr std::int64_t kSumsBytes = std::int64_t{1} << 16;  // partial sums of a comparison

    explicit WorkSpace(std::int64_t bytes);

    std::byte* data() const { return data_.get(); }
    std::int64_t bytes() const { return bytes_; }
    void* sums() const { return sums_.get(); }
    CublasLt& products();  // loaded at the first call

    /// Memory apart from the work space, which a band may fill.
    using DeviceMemory = std::unique_ptr<std::byte, void (*)(std::byte*)>;
    static DeviceMemory allocate(std::int64_t bytes);

  private:
    std::int64_t bytes_;
    DeviceMemory data_, sums_;
    std::unique_ptr<CublasLt> cublas_;
};

/// Arrays in the work space, one after the other, each aligned to 256 bytes.
class Pieces {
  public:
    static constexpr std::int64_t kAlignment = 256;

    explicit Pieces(const WorkSpace& space) : space_(space) {}
    /// Throws Error where the work space is too small.
    float* floats(std::int64_t count);

  private:
    const WorkSpace& space_;
    std::int64_t used_ = 0;
};

class OpCheck {
  public:
    OpCheck(WorkSpace& space, const Memory& memory, const Capture& before, hopper::Stream stream)
        : space_(space), memory_(memory), before_(before), stream_(stream) {}

    hopper::Stream stream() const { return stream_; }
    const WorkSpace& space() const { return space_; }
    const Memory& memory() const { return memory_; }

    /// The copy of an operand from before the launch; nullptr where none was taken.
    const std::byte* captured(const char* operand) const;

    void product(const Product& product) { space_.products().product(product, 1)(stream_); }

    /// Calls band(product, first, rows) for bands of the GEMM of a (m, k) and b: `product` holds rows
    /// [first, first + rows) of the result in fp32, n elements per row. `first` is a multiple of `unit`. For
    /// WeightGradient a row of the result is a column of `a`, unless that is FP8. FP8 operands are multiplied as bf16:
    /// a, and b where it takes more than a quarter of the work space, are decoded in bands.
    void by_rows(const View& a, hopper::Major major_a, const View& b, hopper::Major major_b, std::int64_t unit,
                 const std::function<void(const float*, std::int64_t, std::int64_t)>& band);

    void add(const char* operand, const ErrorSums& sums);

    /// For sums whose terms cancel: `squares` and `largest` are the sum of squares and the largest magnitude that an
    /// operand would have if they did not. Its differences are measured against these where its own are smaller.
    void add_terms(const char* operand, double squares, double largest);

    std::vector<OperandError> results() const;

  private:
    struct Compared {
        std::string operand;
        ErrorSums sums, terms;  // terms: the expected members only
    };
    Compared& compared(const char* operand);
    void by_rows_f8(const View& a, const View& b, std::int64_t unit,
                    const std::function<void(const float*, std::int64_t, std::int64_t)>& band);

    WorkSpace& space_;
    const Memory& memory_;
    const Capture& before_;
    hopper::Stream stream_;
    std::vector<Compared> compared_;
};

/// Compares every operand that the op writes with its formula. Each op's folder specialises this function, so an op
/// without one does not link.
template <class Op>
void check_op(const Op& op, OpCheck& check);

}  // namespace coda::oracle
