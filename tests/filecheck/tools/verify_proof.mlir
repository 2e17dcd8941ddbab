// The programs of the paper are proven to compute what its sequential training step does, and so are those of their ranks.
// RUN: distir verify --proof --ranks %S/../paper/figure_sequential.mlir %S/../paper/figure2.mlir | filecheck %s
// RUN: distir verify --proof --ranks %S/../paper/figure_sequential.mlir %S/../paper/data_parallel.mlir | filecheck %s

// CHECK:      onnx.MatMul: #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>
// CHECK:      every output is proven (2), by 5 rules of operators, 0 of them probed
// CHECK-NEXT: the programs of 2 ranks: every output is proven (2), by 5 rules of operators, 0 of them probed
