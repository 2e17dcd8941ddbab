// RUN: DISTIR_ROUNDTRIP

// What a shard of rows 2 to 4 of 8 makes of indices of all rows.

// CHECK: [[I:%.*]] = "dist.local_index"(%i) <{start = 2 : i64, stop = 4 : i64, extent = 8 : i64}> : (tensor<5xi64>) -> tensor<5xi64>
// CHECK-NEXT: "dist.inside"(%x, %i) <{start = 2 : i64, stop = 4 : i64, extent = 8 : i64, dims = array<i64: 0>}> : (tensor<5x3xf32>, tensor<5xi64>) -> tensor<5x3xf32>
func.func @shard(%x: tensor<5x3xf32>, %i: tensor<5xi64>) {
  %0 = "dist.local_index"(%i) <{start = 2 : i64, stop = 4 : i64, extent = 8 : i64}> : (tensor<5xi64>) -> tensor<5xi64>
  %1 = "dist.inside"(%x, %i) <{start = 2 : i64, stop = 4 : i64, extent = 8 : i64, dims = array<i64: 0>}> : (tensor<5x3xf32>, tensor<5xi64>) -> tensor<5x3xf32>
  func.return
}
