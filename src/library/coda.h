/* libcoda: coda_train as a function, in plain C, a training loop of the caller's own over the same run, and what a team
 * of ranks needs from its caller.
 *
 * A rank is a process. It has one GPU, or the CPU. coda_main() does what coda_train does: the same flags, data order,
 * log, checkpoints, signals and exit codes. coda_open() and what follows it leave data, log and, if wanted, the
 * optimizer to the caller. Where `team` is given, the process is one of several ranks, and the caller's functions move
 * bytes between them: by NCCL, gloo, MPI or anything else. libcoda links none of these.
 *
 * No exception leaves the library. It calls the functions of a team on the thread that called it. One run at a time per
 * process, always on the same thread.
 */
#ifndef CODA_H
#define CODA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CODA_API __attribute__((visibility("default")))
#else
#define CODA_API
#endif

/* Of this header. A library of another number has other structs: it is libcoda.so.2, and so on. */
#define CODA_ABI 1

/* Where the memory lies that ranks share. */
enum { CODA_HOST = 0, CODA_GPU = 1 };

/* What a transfer does. Places are bytes from the base of coda_team.memory, the same on all ranks. A part has `bytes`,
 * which may be 0.
 *   CODA_SCATTER: part r, at source + r * bytes, goes to rank r, which puts what rank s sent at target + s * bytes.
 *   CODA_GATHER:  a rank's own part lies at target + rank * bytes, and all parts are wanted from target on. `source` is
 *                 the place of the own part. */
enum { CODA_SCATTER = 0, CODA_GATHER = 1 };

typedef struct {
    int32_t how;
    int64_t source, target, bytes;
} coda_transfer;

/* A rank's way to the others. All ranks make the same calls in the same order, with the same sizes. A function that
 * returns int returns 0, or another number where another rank is gone or its own work failed: why() then says what
 * happened, and the run ends with that text. */
typedef struct {
    int32_t abi;         /* CODA_ABI */
    int32_t rank, ranks; /* 0 <= rank < ranks */
    int32_t device;      /* the GPU that a run on GPUs takes, of those that the process sees */
    int32_t threads;     /* of OpenMP, of this rank; 0: as the environment says */
    void* context;       /* the first argument of every function */

    /* Once: memory that the other ranks reach, zeroed, aligned to 1024 bytes. `where`: CODA_HOST, or CODA_GPU for
     * memory of `device`. */
    int (*memory)(void* context, int32_t where, int64_t bytes, void** base);

    /* Once, after memory(): the transfers that start() and finish() name by their place in this array. */
    int (*set_transfers)(void* context, const coda_transfer* transfers, int32_t count);

    /* Blocking: every rank's `bytes` bytes, in the order of ranks, into `all`. */
    int (*share)(void* context, const void* mine, int64_t bytes, void* all);

    /* Begins a transfer behind everything that `stream`, a CUstream, has, and returns at once. On a CPU `stream` is
     * null, and everything before the call is done. */
    int (*start)(void* context, int32_t transfer, void* stream);

    /* `stream` waits until a transfer that was started is done on this rank: what it receives is there, and what it
     * sends may be overwritten. On a CPU the caller waits. */
    int (*finish)(void* context, int32_t transfer, void* stream);

    /* The run has failed on this rank only. Others, whose calls fail from now on, should hear `why`. */
    void (*leave)(void* context, const char* why);

    /* What happened in the call that failed last. Valid until the next call. */
    const char* (*why)(void* context);
} coda_team;

/* All of coda_train: argv[0] is its name, and flags follow. team: null for one rank. Returns the exit code: 0 done, 1
 * error, 2 bad use, 3 a result that is not finite, 130 interrupted and saved. Installs handlers of SIGINT, SIGTERM,
 * SIGHUP and SIGUSR1 while it trains. Once per process.
 *
 * On a GPU the process ends within the call, with exit code 1 and a message, where a function of the team fails, and
 * where it was asked to stop and its GPU has then waited for 20 seconds for a rank that does not answer: a clean-up
 * would wait for that GPU. */
CODA_API int coda_main(int argc, const char* const* argv, const coda_team* team);

/* A run in the caller's own loop: the model, its memory and its passes. A function that returns int returns an exit
 * code as coda_main() does, and coda_problem() has the message of one that is not 0. */
typedef struct coda_run coda_run;

/* What a run expects. `step`: how many steps the weights have behind them. */
typedef struct {
    int64_t micro_batches;  /* of this rank in a step */
    int64_t batch, seq_len; /* B and T of each */
    int64_t vocab;          /* ids are smaller */
    int64_t step;
    int32_t where;   /* CODA_HOST or CODA_GPU: where segments lie */
    int32_t tensors; /* coda_tensor() has that many */
} coda_shape;

/* Elements in the run's memory, one after the other. */
typedef struct {
    void* base;
    int64_t elements;
    int32_t dtype; /* CODA_F32, CODA_BF16, CODA_F64 */
} coda_segment;
enum { CODA_F64 = 0, CODA_F32 = 1, CODA_BF16 = 2 };

/* A tensor under its Hugging Face name: where its rows are in "master" and "gradient", counted in elements. Row r
 * begins at element + packed(r) * row_stride, where packed(r) is r, or, with head_dim > 0 (q and k), pairs of a head
 * lie next to each other: row (head, i + b head_dim / 2) is packed row (head, 2 i + b). A vector is one row; with
 * head_dim > 0 the same holds for its elements. */
typedef struct {
    const char* name; /* valid until coda_close() */
    int64_t rows, cols;
    int64_t element, row_stride;
    int64_t head_dim;
    int32_t matrix; /* 1, or 0 for a vector: the weight of a norm, or a bias */
} coda_tensor;

/* Plans, allocates, and takes the weights from where the flags say; nothing is allocated later. The flags are those of
 * the configuration, --init-from and --resume; argv[0] is a name. Data files are not opened. *run is null on failure.
 */
CODA_API int coda_open(int argc, const char* const* argv, const coda_team* team, coda_run** run);
CODA_API void coda_close(coda_run* run);

CODA_API int coda_shape_of(coda_run* run, coda_shape* shape);
/* "master": weights, "gradient", "m" and "v": moments, "working": what GEMMs read, which an FP8 run of one rank keeps
 * otherwise. With LayerNorm GEMMs read some matrices as copies of it, which coda_update and coda_publish make. Of
 * several ranks each has all of "gradient" and "working", with the sums of all ranks only in its own part of
 * "gradient", and its part of the others. */
CODA_API int coda_segment_of(coda_run* run, const char* name, coda_segment* segment);
CODA_API int coda_tensor_of(coda_run* run, int32_t index, coda_tensor* tensor);

/* The gradients of a step's loss, the mean over the counted targets of all ranks; tokens and targets are
 * (micro_batches, B, T), and a negative target is ignored. Returns when the gradients are there. */
CODA_API int coda_gradients(coda_run* run, const int32_t* tokens, const int32_t* targets);
/* The configured optimizer's step with this learning rate, after coda_gradients(). */
CODA_API int coda_update(coda_run* run, double learning_rate);
/* Instead of coda_update(), after the caller has changed "master": makes the copies that GEMMs read, and gathers them
 * from all ranks. It is an update of learning rate 0, so m and v change, and master does not. */
CODA_API int coda_publish(coda_run* run);
/* Loss and gradient norm, before clipping, of the last step, after coda_update() or coda_publish(). 3 where one is not
 * finite: the weights are those before that step, and stay so. */
CODA_API int coda_result(coda_run* run, double* loss, double* norm);
/* The mean loss of one micro-batch, (B, T). */
CODA_API int coda_validate(coda_run* run, const int32_t* tokens, const int32_t* targets, double* loss);

/* What the call that failed last said. Valid until the next call. */
CODA_API const char* coda_problem(void);

/* CODA_ABI of the library. */
CODA_API int32_t coda_abi(void);

/* Version, commit and compiler: "coda_train 0.1.0 (1a2b3c4d5e6f, hopper, Release, GNU 12.2.0)". */
CODA_API const char* coda_build(void);

#ifdef __cplusplus
}
#endif

#endif
