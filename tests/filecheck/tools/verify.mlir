// The programs of the paper compute what its sequential training step does.
// RUN: distir verify %S/../paper/figure_sequential.mlir %S/../paper/figure2.mlir | filecheck %s
// RUN: distir verify %S/../paper/figure_sequential.mlir %S/../paper/figure2_swapped.mlir | filecheck %s
// RUN: distir verify %S/../paper/figure_sequential.mlir %S/../paper/data_parallel.mlir | filecheck %s
// RUN: distir verify %S/../paper/figure_sequential.mlir %S/../paper/figure8.mlir | filecheck %s
// RUN: distir verify %S/../paper/figure_sequential.mlir %S/../paper/figure9.mlir | filecheck %s

// CHECK:      all values drawn: seed 0, seed 1, seed 2
// CHECK-NEXT: output
// CHECK-NEXT: w1 agrees
// CHECK-NEXT: w2 agrees
// CHECK-NEXT: every output agrees (2)
