#include "kernels/hopper/decode/plan/lower.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/core/cache_shape.h"
#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/core/operand_check.h"

namespace coda::hopper::decode {

namespace {

bool same_contents(const View& a, const View& b) {
    return a.buffer == b.buffer && a.offset == b.offset && a.version == b.version;
}
bool same_place(const View& a, const View& b) { return a.buffer == b.buffer && a.offset == b.offset; }

/// Walks the list and checks that every op reads what the one before it in the pattern made.
class Lowering {
  public:
    Lowering(const Schedule& schedule, const Memory& memory, int grid)
        : schedule_(schedule), memory_(memory), plan_{.ops = {}, .lds = {}, .operands = {}, .grid = grid} {}

    DecodePlan run() {
        require(plan_.grid >= 1 && plan_.grid <= kMostSms, "decode: a grid of ", plan_.grid,
                " SMs, and the fused kernel takes 1 to ", kMostSms);
        const auto* choose = schedule_.empty() ? nullptr : std::get_if<ChooseToken>(&schedule_.back().op);
        require(choose != nullptr, "decode: the list does not end with ChooseToken");
        embed(next<Embed>());
        while (follows<LinearRope>()) layer();
        require(layers_ > 0, "decode: the list has no layer");
        head(next_gemm<Linear>());
        this->choose(next<ChooseToken>());
        require(next_ == schedule_.size(), "decode: steps after ", schedule_[next_ - 1].name);
        require(plan_.ops.size() <= kMostOps, "decode: ", layers_, " layers have ", plan_.ops.size(),
                " operations, and the fused kernel takes up to ", kMostOps);
        rotate();
        return std::move(plan_);
    }

  private:
    Shape& shape() { return plan_.operands.shape; }

    template <class T>
    const T& next() {
        require(next_ < schedule_.size(), "decode: the list ends where ", T::name, " should follow");
        const Step& step = schedule_[next_++];
        const T* op = std::get_if<T>(&step.op);
        require(op != nullptr, "decode: step ", next_ - 1, " (layer ", step.layer, " ", step.name, ") is ",
                coda::name_of(step.op), ", expected ", T::name);
        where_ = step.layer < 0 ? text("decode: ", step.name) : text("decode: layer ", step.layer, " ", step.name);
        return *op;
    }

    /// A GEMM, and what unpacks its weights before it, if they are 4-bit integers.
    template <class T>
    const T& next_gemm() {
        unpacks_ = holds<UnpackInt4>(next_) ? &next<UnpackInt4>() : nullptr;
        return next<T>();
    }
    template <class T>
    bool holds(std::size_t at) const {
        return at < schedule_.size() && std::holds_alternative<T>(schedule_[at].op);
    }
    template <class T>
    bool follows() const {
        return holds<T>(next_ + (holds<UnpackInt4>(next_) ? 1 : 0));
    }

    /// The operand is what an earlier op of the pattern made.
    void expect(const char* operand, const View& found, const View& made) const {
        require(same_contents(found, made), where_, ": operand ", operand, " is not the result of the step before it");
    }
    void expect_shape(const char* operand, const View& view, std::int64_t rows, std::int64_t cols, DType dtype) const {
        require_operand(where_.c_str(), operand, view, rows, cols, dtype);
    }
    int width(const char* what, std::int64_t value) const {
        require(value >= kStepColumns && value % kStepColumns == 0 && value <= 1 << 20, where_, ": ", what, " is ",
                value, ", and the fused kernel takes multiples of ", kStepColumns, " up to ", 1 << 20);
        return static_cast<int>(value);
    }
    void set_eps(double eps) {
        const auto value = static_cast<float>(eps);
        require(plan_.ops.empty() || value == plan_.operands.eps, where_, ": eps is ", eps,
                ", and that of the embedding is ", plan_.operands.eps);
        plan_.operands.eps = value;
    }

    DecodeOp gemm(OpKind kind, const View& w, int columns, int rows) {
        expect_shape("w", w, rows, columns, DType::bf16);
        if (unpacks_ != nullptr) return int4_gemm(kind, w, columns, rows);
        const Bf16* weights = memory_.at<Bf16>(w);
        require(w.ld % 8 == 0 && reinterpret_cast<std::uintptr_t>(weights) % 16 == 0 && w.ld <= 1 << 30, where_,
                ": rows of w (", w.ld, " elements apart) do not start at multiples of 16 bytes");
        ld_ = w.ld;
        return {.weights = weights, .tiles = rows / kTileRows, .columns = columns, .kind = kind};
    }

    /// Of units that unpacks_ reads; the kernel does not store what it makes of them.
    DecodeOp int4_gemm(OpKind kind, const View& w, int columns, int rows) {
        const UnpackInt4& op = *unpacks_;
        expect("w", w, op.working);
        require(rows % kInt4Rows == 0 && columns % kInt4Group == 0, where_, ": w is ", rows, " x ", columns,
                ", and 4-bit integers come in units of ", kInt4Rows, " x ", kInt4Group);
        const std::int64_t words = columns / kInt4Group * kInt4UnitWords;
        expect_shape("units", op.units, rows / kInt4Rows, words, DType::i32);
        const auto* units = memory_.at<std::int32_t>(op.units);
        require(op.units.ld == words && reinterpret_cast<std::uintptr_t>(units) % 16 == 0, where_,
                ": the units of w are not contiguous from a multiple of 16 bytes on");
        shape().int4 = true;
        ld_ = 0;
        return {.weights = units,
                .norm = op.gamma ? norm(op.gamma, columns) : -1,
                .tiles = rows / kTileRows,
                .columns = columns,
                .kind = kind,
                .int4 = true};
    }
    /// The weights of all norms lie in one vector, of which the first one that comes is where Operands::norms begins.
    std::int32_t norm(const View& gamma, int columns) {
        expect_shape("gamma", gamma, 1, columns, DType::f32);
        const auto* weight = memory_.at<float>(gamma);
        if (plan_.operands.norms == nullptr) plan_.operands.norms = weight;
        const std::ptrdiff_t from = weight - plan_.operands.norms;
        require(reinterpret_cast<std::uintptr_t>(weight) % 16 == 0 && from >= 0 &&
                    from <= std::numeric_limits<std::int32_t>::max(),
                where_, ": gamma does not lie behind the first norm's, at a multiple of 16 bytes");
        return static_cast<std::int32_t>(from);
    }
    /// An operand in fp32 that every layer has, or none.
    void layer_vector(const char* operand, const View& view, std::int64_t rows, std::int64_t cols, bool& has,
                      LayerVectors& vectors) {
        if (layers_ == 0) has = static_cast<bool>(view);
        require(has == static_cast<bool>(view), where_, ": operand ", operand,
                has ? " is missing, and layer 0 has it" : " is there, and layer 0 has none");
        if (!has) return;
        expect_shape(operand, view, rows, cols, DType::f32);
        const auto* const here = memory_.at<float>(view);
        if (layers_ == 0) vectors.first = here;
        if (layers_ == 1) vectors.apart = here - vectors.first;
        require(view.ld == cols && reinterpret_cast<std::uintptr_t>(here) % 8 == 0 && here == vectors.of(layers_),
                where_, ": operand ", operand,
                " is not contiguous from a multiple of 8 bytes on, as far behind the layer before as in layer 1");
    }
    void add(const DecodeOp& op) {
        plan_.ops.push_back(op);
        plan_.lds.push_back(std::exchange(ld_, 0));
    }

    void embed(const Embed& op) {
        const std::int64_t batch = op.tokens.cols;
        require(batch >= 1 && batch <= kMaxBatch, "decode: ", batch, " sequences, and the fused kernel takes 1 to ",
                kMaxBatch);
        shape().batch = static_cast<int>(batch);
        shape().width = width("the model's width", op.x.cols);
        require(!op.centred, where_, ": model.norm is \"layernorm\", and the fused kernel has RMSNorm");
        require(!op.position_table, where_,
                ": model.position_embeddings is \"learned\", and the fused kernel adds no positions");
        expect_shape("tokens", op.tokens, 1, batch, DType::i32);
        expect_shape("table", op.table, op.table.rows, shape().width, DType::bf16);
        expect_shape("x", op.x, batch, shape().width, DType::bf16);
        plan_.operands.table = memory_.at<Bf16>(op.table);
        plan_.operands.table_ld = op.table.ld;
        require(op.table.ld % 4 == 0 && reinterpret_cast<std::uintptr_t>(plan_.operands.table) % 8 == 0, where_,
                ": rows of table do not start at multiples of 8 bytes");
        set_eps(op.eps);
        tokens_ = op.tokens;
        x_ = op.x;
        rstd_ = op.rstd;
    }

    void layer() {
        const View in = x_;
        const LinearRope& qkv = next_gemm<LinearRope>();
        expect("a", qkv.a, x_);
        expect("rstd", qkv.rstd, rstd_);
        const std::string at_qkv = where_;
        const UnpackInt4* const unpacks = unpacks_;
        const DecodeAttention& attention = next<DecodeAttention>();
        const std::string at_attention = where_;
        sizes(attention, qkv);
        expect("qkv", attention.qkv, qkv.out);
        where_ = at_qkv;
        unpacks_ = unpacks;
        const DecodeOp entry = gemm(OpKind::qkv, qkv.w, shape().width, shape().qkv_columns());
        layer_vector("bias", qkv.bias, 1, shape().qkv_columns(), shape().bias, plan_.operands.bias);
        layer_vector("gain", qkv.gain, 2, shape().head_dim, shape().head_norms, plan_.operands.gain);
        if (qkv.gain) norms_of_heads(qkv);
        rope(qkv);
        where_ = at_attention;
        add_attention(attention, entry);
        residual(OpKind::attn_out, next_gemm<LinearResidualRms>(), o_, shape().q_columns(), in);
        finish(next<FinishRstd>());
        require(!follows<LinearGelu>(), "decode: layer ", layers_,
                ": model.mlp is GELU, and the fused kernel has SwiGLU");
        const LinearSwiglu& swiglu = next_gemm<LinearSwiglu>();
        expect("a", swiglu.a, x_);
        expect("rstd", swiglu.rstd, rstd_);
        const int feed_forward = width("the feed-forward width", swiglu.y.cols);
        require(layers_ == 0 || feed_forward == shape().feed_forward, where_, ": y has ", feed_forward,
                " columns, and in layer 0 ", shape().feed_forward);
        shape().feed_forward = feed_forward;
        add(gemm(OpKind::gate_up, swiglu.w, shape().width, 2 * feed_forward));
        const View y = swiglu.y, middle = x_;
        residual(OpKind::down, next_gemm<LinearResidualRms>(), y, feed_forward, middle);
        finish(next<FinishRstd>());
        ++layers_;
    }

    void sizes(const DecodeAttention& op, const LinearRope& qkv) {
        const CacheShape cache = cache_shape(op);
        limits::require_none(where_.c_str(), limits::head_dim_problem("head_dim", cache.head_dim));
        require(cache.group() <= kMaxGroup, where_, ": heads / kv_heads is ", cache.group(),
                ", and the fused kernel takes up to ", kMaxGroup);
        constexpr std::int64_t kMostContext = std::numeric_limits<int>::max() / 2;
        require(cache.context <= kMostContext, where_, ": a context of ", cache.context,
                " positions, and the fused kernel takes up to ", kMostContext);
        require(cache.rows == shape().batch, where_, ": attention has ", cache.rows, " rows, and the list ",
                shape().batch);
        const bool is_power = (op.rows_each & (op.rows_each - 1)) == 0;
        require(op.rows_each == 1 || (is_power && cache.rows >= kLamportFrom && cache.rows <= kOctet), where_, ": ",
                cache.rows, " rows, ", op.rows_each, " of each sequence, and the fused kernel takes ", kLamportFrom,
                " to ", kOctet, " rows where a sequence has 2, 4 or 8");
        Shape made = shape();
        made.heads = static_cast<int>(cache.heads);
        made.kv_heads = static_cast<int>(cache.kv_heads);
        made.head_dim = static_cast<int>(cache.head_dim);
        made.context = static_cast<int>(cache.context);
        made.window = static_cast<int>(op.most_positions());
        require(layers_ == 0 || (made.heads == shape().heads && made.kv_heads == shape().kv_heads &&
                                 made.head_dim == shape().head_dim && made.context == shape().context &&
                                 made.window == shape().window),
                where_, ": heads, context or window differ from layer 0");
        require(layers_ == 0 || op.rows_each == rows_each_, where_, ": ", op.rows_each,
                " rows of a sequence, and in layer 0 ", rows_each_);
        rows_each_ = op.rows_each;
        shape() = made;
        require(qkv.head_dim == cache.head_dim && qkv.rotated == (cache.heads + cache.kv_heads) * cache.head_dim,
                where_, ": LinearRope rotates ", qkv.rotated, " columns in heads of ", qkv.head_dim,
                ", and attention has ", cache.heads, " + ", cache.kv_heads, " heads of ", cache.head_dim);
        require(op.keys.ld == cache.head_dim && op.values.ld == cache.head_dim, where_,
                ": the rows of the caches are not contiguous");
        require(op.keys.dtype == DType::bf16, where_, ": the caches are ", coda::name_of(op.keys.dtype),
                ", expected bf16");
    }

    void norms_of_heads(const LinearRope& op) const {
        require_heads(op, op.out.cols);
        require(op.queries == plan_.operands.shape.q_columns(), where_, ": ", op.queries,
                " columns have the norm of q heads, and attention has ", plan_.operands.shape.q_columns());
        require(static_cast<float>(op.eps) == plan_.operands.eps, where_, ": eps of the norms of heads is ", op.eps,
                ", and that of the embedding is ", plan_.operands.eps);
        require(!op.pre && !op.rho, where_, ": the fused kernel stores no operand pre or rho");
    }

    void rope(const LinearRope& op) {
        expect_shape("rope", op.rope, op.rope.rows, shape().head_dim, DType::f32);
        require(op.rope.rows >= shape().context && op.rope.ld == shape().head_dim, where_, ": the table of angles has ",
                op.rope.rows, " rows ", op.rope.ld, " apart, and the context ", shape().context);
        const float* table = memory_.at<float>(op.rope);
        require(layers_ == 0 || table == plan_.operands.rope, where_, ": another table of angles than in layer 0");
        plan_.operands.rope = table;
    }

    void add_attention(const DecodeAttention& op, DecodeOp qkv) {
        DecodeOp attention{.keys = memory_.at<Bf16>(op.keys),
                           .values = memory_.at<Bf16>(op.values),
                           .kind = OpKind::attention,
                           .embedded = layers_ == 0,
                           .shared_log2 = static_cast<std::uint8_t>(std::countr_zero(std::uint64_t(op.rows_each)))};
        for (const Bf16* cache : {attention.keys, attention.values})
            require(reinterpret_cast<std::uintptr_t>(cache) % 16 == 0, where_,
                    ": a cache does not start at a multiple of 16 bytes");
        require(layers_ == 0 || same_place(op.lengths, lengths_), where_, ": other lengths than in layer 0");
        lengths_ = op.lengths;
        qkv.keys = attention.keys;
        qkv.values = attention.values;
        qkv.embedded = attention.embedded;
        qkv.shared_log2 = attention.shared_log2;
        add(qkv);
        add(attention);
        o_ = op.o;
    }

    void residual(OpKind kind, const LinearResidualRms& op, const View& input, int columns, const View& old) {
        expect("a", op.a, input);
        expect("residual", op.residual, old);
        if (kind == OpKind::attn_out)
            layer_vector("bias", op.bias, 1, shape().width, shape().out_bias, plan_.operands.out_bias);
        else
            require(!op.bias, where_, ": model.mlp_bias is true, and the fused kernel adds no bias");
        DecodeOp entry = gemm(kind, op.w, columns, shape().width);
        entry.embedded = layers_ == 0 && kind == OpKind::attn_out;
        add(entry);
        x_ = op.x;
        square_ = op.square;
    }

    void finish(const FinishRstd& op) {
        expect("square", op.square, square_);
        require(op.width == shape().width, where_, ": a norm over ", op.width, " columns, expected ", shape().width);
        set_eps(op.eps);
        rstd_ = op.rstd;
    }

    void head(const Linear& op) {
        expect("a", op.a, x_);
        expect("rstd", op.rstd, rstd_);
        require(op.layout == WeightLayout::out_in && op.out.beta == Beta::overwrite, where_,
                ": the head must overwrite its logits, with a matrix (vocabulary, width)");
        const int padded = width("the padded vocabulary", op.out.cols);
        shape().padded_vocab = padded;
        expect_shape("out", op.out, shape().batch, padded, DType::bf16);
        add(gemm(OpKind::head, op.w, shape().width, padded));
        plan_.operands.logits = memory_.at<Bf16>(op.out);
        plan_.operands.logits_ld = op.out.ld;
        logits_ = op.out;
    }

    void choose(const ChooseToken& op) {
        const std::int64_t batch = shape().batch;
        expect("logits", op.logits, logits_);
        require(op.logits.cols >= 1 && op.logits.cols <= shape().padded_vocab, where_, ": ", op.logits.cols,
                " logits of ", shape().padded_vocab);
        require(same_place(op.lengths, lengths_), where_, ": other lengths than attention's");
        require(same_place(op.token, tokens_), where_, ": token is not what Embed looks up");
        shape().vocab = static_cast<int>(op.logits.cols);
        ChoiceRows& rows = plan_.operands.choice;
        const auto vector = [&](const char* name, const View& view) {
            expect_shape(name, view, 1, batch, DType::i32);
            return memory_.at<std::int32_t>(view);
        };
        expect_shape("options", op.options, 1, ChooseToken::kOptionWords * batch, DType::i32);
        const std::int32_t* options = memory_.at<std::int32_t>(op.options);
        require(reinterpret_cast<std::uintptr_t>(options) % alignof(ChoiceOptions) == 0, where_,
                ": operand options is not aligned to ", alignof(ChoiceOptions), " bytes");
        rows.options = reinterpret_cast<const ChoiceOptions*>(options);
        if (op.end_tokens) {
            expect_shape("end_tokens", op.end_tokens, batch, op.end_tokens.cols, DType::i32);
            rows.end_tokens = memory_.at<std::int32_t>(op.end_tokens);
            rows.end_ld = op.end_tokens.ld;
            rows.ends = static_cast<int>(op.end_tokens.cols);
        }
        if (op.seen) {
            expect_shape("seen", op.seen, batch, ceil_div(op.logits.cols, std::int64_t{32}), DType::i32);
            rows.seen = memory_.at<std::int32_t>(op.seen);
            rows.seen_ld = op.seen.ld;
        }
        rows.limits = vector("limits", op.limits);
        rows.lengths = vector("lengths", op.lengths);
        if (op.positions) rows.positions = vector("positions", op.positions);
        rows.state = vector("state", op.state);
        rows.token = vector("token", op.token);
        rows.status = vector("status", op.status);
        add({.kind = OpKind::choose});
    }

    /// An op's tiles begin at the SM after the last one of the op before, so that over a step no SM has more than
    /// one tile more than another. Attention counts, with the tiles of unsplit sequences, so that at batch 1 its SMs
    /// are among those that have a tile fewer of qkv or attn_out: their rings hold its keys and values too.
    void rotate() {
        const Shape& shape = plan_.operands.shape;
        std::int64_t tiles = 0;
        for (DecodeOp& entry : plan_.ops) {
            entry.rotation = static_cast<std::int16_t>(tiles % plan_.grid);
            tiles += entry.kind == OpKind::attention ? std::int64_t{shape.batch} * shape.kv_heads : entry.tiles;
        }
    }

    const Schedule& schedule_;
    const Memory& memory_;
    DecodePlan plan_;
    const UnpackInt4* unpacks_ = nullptr;  // the weights of the GEMM that is looked at
    std::int64_t ld_ = 0;                  // of the weights that gemm() has looked at
    std::size_t next_ = 0;
    int layers_ = 0;
    std::int64_t rows_each_ = 1;
    std::string where_;                                       // for messages
    View tokens_, x_, rstd_, square_, o_, logits_, lengths_;  // as the last op made them
};

}  // namespace

DecodePlan lower(const Schedule& schedule, const Memory& memory, int grid) {
    return Lowering(schedule, memory, grid).run();
}

}  // namespace coda::hopper::decode
