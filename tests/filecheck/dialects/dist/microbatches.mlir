// RUN: distir-opt %s | distir-opt | filecheck %s
// RUN: distir-opt %s -p check-module | filecheck %s

func.func @main(%x: tensor<12x8xf32>, %w: tensor<8xf32>) -> (tensor<8xf32>, tensor<12x8xf32>) {
  // CHECK: %sum = dist.zeros : tensor<8xf32>
  %sum = dist.zeros : tensor<8xf32>
  %all = dist.zeros : tensor<12x8xf32>
  // CHECK: %parted = dist.batch_rows %x dim 0 : tensor<12x8xf32> -> tensor<12x8xf32>
  %parted = dist.batch_rows %x dim 0 : tensor<12x8xf32> -> tensor<12x8xf32>
  // CHECK: %s, %y = dist.microbatches @body(%x, %w, %sum, %all) times 3 {tag} : (tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<12x8xf32>) -> (tensor<8xf32>, tensor<12x8xf32>)
  %s, %y = dist.microbatches @body(%x, %w, %sum, %all) times 3 {tag} : (tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<12x8xf32>) -> (tensor<8xf32>, tensor<12x8xf32>)
  func.return %s, %y : tensor<8xf32>, tensor<12x8xf32>
}
func.func private @body(%x: tensor<12x8xf32>, %w: tensor<8xf32>, %sum: tensor<8xf32>, %all: tensor<12x8xf32>, %k: index) -> (tensor<8xf32>, tensor<12x8xf32>) {
  // CHECK: %rows = dist.take_rows %x at %k dim 0 : tensor<12x8xf32> -> tensor<4x8xf32>
  %rows = dist.take_rows %x at %k dim 0 : tensor<12x8xf32> -> tensor<4x8xf32>
  // CHECK: %put = dist.put_rows %rows into %all at %k dim 0 : tensor<4x8xf32>, tensor<12x8xf32> -> tensor<12x8xf32>
  %put = dist.put_rows %rows into %all at %k dim 0 : tensor<4x8xf32>, tensor<12x8xf32> -> tensor<12x8xf32>
  // CHECK: %again = dist.put_rows %rows into %put at %k dim 0 places 2 : tensor<4x8xf32>, tensor<12x8xf32> -> tensor<12x8xf32>
  %again = dist.put_rows %rows into %put at %k dim 0 places 2 : tensor<4x8xf32>, tensor<12x8xf32> -> tensor<12x8xf32>
  // CHECK: %other = dist.insert %rows into %again dim 0 at 8 : tensor<4x8xf32>, tensor<12x8xf32> -> tensor<12x8xf32>
  %other = dist.insert %rows into %again dim 0 at 8 : tensor<4x8xf32>, tensor<12x8xf32> -> tensor<12x8xf32>
  %added = dist.accumulate sum %sum, %w : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %added, %other : tensor<8xf32>, tensor<12x8xf32>
}
