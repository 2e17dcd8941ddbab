// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model" memory-limit=20MB}' | filecheck %s
// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model" memory-limit=20MB},apply-sharding' | filecheck %s --check-prefix=LOWERED
// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model" shards=even}' | filecheck %s --check-prefix=EVEN
// RUN: not distir-opt %s -p 'ilp-shard{mesh="tp=4" shards=equal}' 2>&1 | filecheck %s --check-prefix=UNKNOWN

// The vocabulary of GPT-2 does not divide by four. Where the table does not fit whole, its rows are cut for both uses: the third device has one more.
func.func @main(%table: tensor<50257x64xf32> {dist.name = "table", dist.role = "parameter"}, %i: tensor<32x8xi64> {dist.name = "i", dist.role = "input"})
    -> (tensor<32x8xf32> {dist.name = "y", dist.role = "output"}) {
  %axis = onnx.Constant dense<[2]> : tensor<1xi64>
  %h = "onnx.Gather"(%table, %i) <{axis = 0 : si64}> : (tensor<50257x64xf32>, tensor<32x8xi64>) -> tensor<32x8x64xf32>
  %r = "onnx.Relu"(%h) : (tensor<32x8x64xf32>) -> tensor<32x8x64xf32>
  %t = "onnx.Transpose"(%table) <{perm = [1 : si64, 0 : si64]}> : (tensor<50257x64xf32>) -> tensor<64x50257xf32>
  %l = "onnx.MatMul"(%r, %t) : (tensor<32x8x64xf32>, tensor<64x50257xf32>) -> tensor<32x8x50257xf32>
  %y = "onnx.ReduceMax"(%l, %axis) <{keepdims = 0 : si64}> : (tensor<32x8x50257xf32>, tensor<1xi64>) -> tensor<32x8xf32>
  func.return %y : tensor<32x8xf32>
}

// CHECK:        dist.gap = 0.0
// CHECK:        %table: tensor<50257x64xf32> {{.*}}dist.sharding = #dist.sharding<@mesh, [{"tp"}, {}]>}
// CHECK:        "onnx.Gather"{{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S4}>
// CHECK:        "onnx.MatMul"{{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S4}>
// LOWERED:      dist.part<[0:12564, 0:64] of [50257, 64]>
// LOWERED-SAME: dist.part<[12564:25128, 0:64] of [50257, 64]>
// LOWERED-SAME: dist.part<[25128:37693, 0:64] of [50257, 64]>
// LOWERED-SAME: dist.part<[37693:50257, 0:64] of [50257, 64]>
// LOWERED:      "onnx.MatMul"{{.*}} -> tensor<32x8x12564xf32, #dist.on<0>>
// LOWERED:      "onnx.MatMul"{{.*}} -> tensor<32x8x12565xf32, #dist.on<2>>
// EVEN:         %table: tensor<50257x64xf32> {{.*}}dist.sharding = #dist.sharding<@mesh, [{}, {}]>}
// UNKNOWN:      shards: expected one of any, even, got 'equal'
