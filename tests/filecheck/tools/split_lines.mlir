// RUN: not distir-opt %s --split-input-file 2>&1 | filecheck %s

// A mistake in a later part is told with its line in the whole file.
// CHECK: split_lines.mlir:13: error: {{.*}}expected [tensor<3xf32>], got [tensor<2xf32>]
func.func @good() {
  func.return
}

// -----

func.func @bad(%x: tensor<2xf32>) -> tensor<3xf32> {
  // the line after this
  func.return %x : tensor<2xf32>
}
