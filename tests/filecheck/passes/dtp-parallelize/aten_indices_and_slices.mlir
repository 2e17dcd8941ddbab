// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// Indices that an operator passes over when they are out of range are drawn in range too: addends, not the whole.
// The batch of a slice's backward is told from the slice, though its size is the slice's: shapes are tried on zeros;
// what begins in the middle of a dim is cut in both halves.

// CHECK: embedding_dense_backward{{.*}}S1: reduce(sum), S2: reduce(sum), S3: gather(1)
// CHECK: slice_backward{{.*}}S1: gather(0), S2: gather(1), S3: gather(2), S4: gather(3, pieces = [1, 1])}, sizes = {input_sizes[0]: S1, input_sizes[1]: S2, input_sizes[2]: S3, input_sizes[3]: S4, start[0]: S4}
builtin.module {
  func.func @main(%g : tensor<4x6x8xf64>, %i : tensor<4x6xi64>, %s : tensor<4x2x6x4xf64>) -> (tensor<9x8xf64>, tensor<4x2x6x8xf64>) {
    %0 = "aten.embedding_dense_backward"(%g, %i) <{num_weights = 9 : i64, padding_idx = -1 : i64, scale_grad_by_freq = false}> : (tensor<4x6x8xf64>, tensor<4x6xi64>) -> tensor<9x8xf64>
    %1 = "aten.slice_backward"(%s) <{input_sizes = array<i64: 4, 2, 6, 8>, dim = 3 : i64, start = 4 : i64, end = 9223372036854775807 : i64, step = 1 : i64}> : (tensor<4x2x6x4xf64>) -> tensor<4x2x6x8xf64>
    func.return %0, %1 : tensor<9x8xf64>, tensor<4x2x6x8xf64>
  }
}
