// Reverse-mode differentiation of scalar arithmetic: a number that remembers how it was computed.
//
// Every operation on a Variable appends one node to its tape: the nodes it came from, and the partial derivative with
// respect to each. Tape::adjoints walks the nodes backwards once (the chain rule, nothing else). A function that is a
// template over its scalar type is differentiated by running it on Variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace coda::textbook {

class Tape;

/// A scalar on a tape, or a constant (on no tape, derivative zero); converting from double gives a constant. All
/// operands of an operation must be on the same tape. A Variable must not outlive its tape.
class Variable {
  public:
    Variable(double constant = 0) : value_(constant) {}

    double value() const { return value_; }

    /// Index of the variable in Tape::adjoints; meaningless for a constant.
    std::uint32_t node() const { return node_; }

  private:
    friend class Tape;
    friend Variable dot(std::span<const Variable> a, std::span<const Variable> b);
    Variable(double value, Tape* tape, std::uint32_t node) : value_(value), tape_(tape), node_(node) {}

    double value_;
    Tape* tape_ = nullptr;
    std::uint32_t node_ = 0;
};

class Tape {
  public:
    Tape() = default;
    Tape(const Tape&) = delete;  // variables point to their tape
    Tape& operator=(const Tape&) = delete;

    /// A variable that depends on nothing.
    Variable input(double value);

    /// d output / d node for every node on the tape; d output / d x of the input x is at [x.node()].
    std::vector<double> adjoints(const Variable& output) const;

    /// One operand of an operation and the partial derivative of the result with respect to it.
    struct Partial {
        const Variable& operand;
        double derivative;
    };

    /// The result of an operation, on the tape of its operands (a constant if all of them are).
    static Variable record(double value, std::initializer_list<Partial> partials);

  private:
    friend Variable dot(std::span<const Variable> a, std::span<const Variable> b);

    void add_edge(const Variable& operand, double derivative);
    Variable add_node(double value);

    std::vector<std::size_t> edges_end_;   // by node; a node's edges begin where its predecessor's end
    std::vector<std::uint32_t> operands_;  // by edge
    std::vector<double> derivatives_;      // by edge
};

Variable operator+(const Variable& a, const Variable& b);
Variable operator-(const Variable& a, const Variable& b);
Variable operator*(const Variable& a, const Variable& b);
Variable operator/(const Variable& a, const Variable& b);
Variable operator-(const Variable& a);

Variable exp(const Variable& a);
Variable log(const Variable& a);
Variable sqrt(const Variable& a);

/// Σ_i a_i b_i of two equally long vectors, as one node.
Variable dot(std::span<const Variable> a, std::span<const Variable> b);

}  // namespace coda::textbook
