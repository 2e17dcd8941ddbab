// RUN: DISTIR_DIAGNOSTICS

// CHECK: expected at least one microbatch, got 0
func.func @main(%x: tensor<4xf32>) {
  dist.microbatches @body(%x) times 0 : (tensor<4xf32>) -> ()
  func.return
}
func.func private @body(%x: tensor<4xf32>, %k: index) {
  func.return
}

// -----

// CHECK: result 0: expected its initial value's type tensor<4xf32>, got tensor<2xf32>
func.func @main(%x: tensor<4xf32>) {
  %0 = dist.microbatches @body(%x) times 2 : (tensor<4xf32>) -> tensor<2xf32>
  func.return
}
func.func private @body(%x: tensor<4xf32>, %k: index) -> tensor<2xf32> {
  %0 = dist.slice %x [0:2] : tensor<4xf32> -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}

// -----

// CHECK: @body: expected 1 index arguments at the end, got 0
func.func @main(%x: tensor<4xf32>) {
  %0 = dist.microbatches @body(%x) times 2 : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}
func.func private @body(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}

// -----

// CHECK: expected rows that divide 4, got 3
func.func @main(%x: tensor<4xf32>, %k: index) {
  %0 = dist.take_rows %x at %k dim 0 : tensor<4xf32> -> tensor<3xf32>
  func.return
}

// -----

// CHECK: dim 0: range 3:5 is outside 0:4
func.func @main(%x: tensor<4xf32>, %y: tensor<2xf32>) {
  %0 = dist.insert %y into %x dim 0 at 3 : tensor<2xf32>, tensor<4xf32> -> tensor<4xf32>
  func.return
}

// -----

// CHECK: expected a dim of tensor<4xf32>, got 1
func.func @parted(%x: tensor<4xf32>) {
  %0 = dist.batch_rows %x dim 1 : tensor<4xf32> -> tensor<4xf32>
  func.return
}

// -----

func.func @body(%rows: tensor<4x8xf32>, %all: tensor<12x8xf32>, %k: index) -> tensor<12x8xf32> {
  // CHECK: expected a number of places that divides 4 rows, got 3
  %put = dist.put_rows %rows into %all at %k dim 0 places 3 : tensor<4x8xf32>, tensor<12x8xf32> -> tensor<12x8xf32>
  func.return %put : tensor<12x8xf32>
}
