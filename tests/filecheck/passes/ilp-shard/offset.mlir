// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=2" machine=dgx-2 restrict="tp=model" memory-limit=30MB}' | filecheck %s
// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=2" machine=dgx-2 restrict="tp=model" memory-limit=80MB}' | filecheck %s --check-prefix=ROOM

// A table of 36000 rows that is looked up in and, transposed, scores all rows. Where memory is short the rows are cut for both
// uses, the lookup by an offset (Megatron's parallel vocabulary, Shoeybi et al., 2019, section 3); with room, the table is whole.
func.func @main(%table: tensor<36000x64xf32> {dist.name = "table", dist.role = "parameter"}, %i: tensor<32x8xi64> {dist.name = "i", dist.role = "input"})
    -> (tensor<32x8xf32> {dist.name = "y", dist.role = "output"}) {
  %axis = onnx.Constant dense<[2]> : tensor<1xi64>
  %h = "onnx.Gather"(%table, %i) <{axis = 0 : si64}> : (tensor<36000x64xf32>, tensor<32x8xi64>) -> tensor<32x8x64xf32>
  %r = "onnx.Relu"(%h) : (tensor<32x8x64xf32>) -> tensor<32x8x64xf32>
  %t = "onnx.Transpose"(%table) <{perm = [1 : si64, 0 : si64]}> : (tensor<36000x64xf32>) -> tensor<64x36000xf32>
  %l = "onnx.MatMul"(%r, %t) : (tensor<32x8x64xf32>, tensor<64x36000xf32>) -> tensor<32x8x36000xf32>
  %y = "onnx.ReduceMax"(%l, %axis) <{keepdims = 0 : si64}> : (tensor<32x8x36000xf32>, tensor<1xi64>) -> tensor<32x8xf32>
  func.return %y : tensor<32x8xf32>
}

// CHECK:      %table: tensor<36000x64xf32> {{.*}}dist.sharding = #dist.sharding<@mesh, [{"tp"}, {}]>}
// CHECK:      "onnx.Gather"{{.*}} -> {{.*}}S4: reduce(sum)}{{.*}}offset = S4{{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S4}>
// CHECK:      "onnx.MatMul"{{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S4}>
// ROOM:       %table: tensor<36000x64xf32> {{.*}}dist.sharding = #dist.sharding<@mesh, [{}, {}]>}
// ROOM:       "onnx.Gather"{{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": _}>
