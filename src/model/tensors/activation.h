// A tensor that GEMMs read, of one block: in storage, or as FP8 codes by rows (forward and dgrad) and transposed
// (wgrad, since wgmma reads FP8 operands along K only).
//
// A block declares its activations and says in its forward and backward passes where each is made; which of them are
// codes is decided once, when the block is built (read_codes). Views count the values of their buffers (step_list.h),
// so an activation belongs to one copy of the model, from which one schedule is built.
#pragma once

#include <cstdint>
#include <string>

#include "src/model/tensors/block_buffers.h"
#include "src/model/tensors/step_list.h"

namespace coda {

/// The scale of an FP8 tensor: scalars of the statistic type. Absent (false) where the tensor is not rounded.
struct Scale {
    View scale;  // a power of two, known before the tensor is (UpdateScales)
    View amax;   // of this step, before rounding and without the scale; absent where the scale is fixed
    DType format = DType::f8e4m3;

    explicit operator bool() const { return static_cast<bool>(scale); }
};

class Activation {
  public:
    /// `name`: of the steps that make its codes, NAME_f8 and NAME_f8_t. `storage`: (M, n), where the block owns it.
    explicit Activation(const char* name, const View& storage = {}) : name_(name), storage_(storage) {}

    /// Codes instead of storage. Without `keeps_columns` the forward pass leaves no transposed codes, and transpose()
    /// makes them.
    void read_codes(const Scale& scale, const CodeViews& codes, bool keeps_columns = true);
    /// Storage instead of codes, in a pass that rounds nothing.
    void read_storage() { scale_ = {}; }
    /// A buffer that the backward pass makes the same values in again, as the forward pass does not keep them.
    void make_again(const View& storage) { again_ = storage; }
    /// From here on it lies where `other` lies, whose values are not read any more.
    void replace(const Activation& other);
    /// The first `rows` rows only.
    void keep_rows(std::int64_t rows);

    /// Its place in storage, and the row factor that the values there lack; then codes, where GEMMs read codes and the
    /// op that made the values has not made them: step NAME_f8.
    void from(StepList& step, const View& storage, const View& rstd = {});
    /// Transposed codes where the forward pass has kept none: step NAME_f8_t.
    void transpose(StepList& step);

    /// What GEMMs read: `a` of a forward GEMM and of dgrad; dy or x of wgrad.
    const View& rows() const { return scale_ ? codes_.rows : storage_; }
    const View& columns() const { return scale_ ? codes_.columns : again_ ? again_ : storage_; }
    /// The row factor that rows() and columns() lack; absent for codes, which have been normalised.
    View rstd() const { return scale_ ? View{} : rstd_; }
    /// The scale of the codes; absent for storage.
    const View& scale() const { return scale_.scale; }
    /// In storage, whatever GEMMs read, and the row factor that it lacks.
    const View& storage() const { return storage_; }
    const View& storage_rstd() const { return rstd_; }

    /// A result in storage, whatever GEMMs read.
    const View& store() { return write(storage_); }
    /// A result of an op that can: storage, or codes.
    Result result();
    /// A result next to another one in storage: the codes; absent where GEMMs read storage.
    Rounded codes();
    /// What the backward pass makes again; absent where the forward pass keeps it, and for codes.
    View again();

  private:
    const char* name_;
    View storage_, rstd_, again_;
    CodeViews codes_;
    Scale scale_;
    bool keeps_columns_ = true;
    bool made_ = false;  // whether an op has been issued that makes the codes
};

}  // namespace coda
