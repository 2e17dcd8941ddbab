// A pipeline that leaves out the second microbatch's gradient of w1 is found out, on the output that it spoils.
// RUN: sed 's/accumulate sum %dw1_1, %dw1_2/accumulate sum %dw1_1, %dw1_1/' %S/../paper/figure2.mlir > %t.mlir
// RUN: not distir verify %S/../paper/figure_sequential.mlir %t.mlir | filecheck %s

// CHECK: w1 DIFFERS
// CHECK: w2 agrees
// CHECK: 1 of 2 outputs differ
