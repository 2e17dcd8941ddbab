// RUN: distir-opt %s -p 'batch-shard{mesh="dp=2"}' | filecheck %s
// RUN: distir-opt %s -p 'batch-shard{mesh="dp=2"},apply-sharding' | filecheck %s --check-prefix=LOWERED

// The mean of a batch, taken from each of its rows: both are cut, and the sum is reduced between them.

// CHECK: dist.mesh @mesh = <["dp" = 2]>
// CHECK: [[S:%.*]] = "onnx.ReduceSum"(%x, {{.*}}dist.strategy = #dist.strategy<@mesh, {"dp": S1}>
// CHECK-NEXT: "onnx.Sub"(%x, [[S]]) {{.*}}dist.strategy = #dist.strategy<@mesh, {"dp": S1}>

// LOWERED:      [[A:%.*]] = "onnx.ReduceSum"(%x,
// LOWERED-NEXT: [[B:%.*]] = "onnx.ReduceSum"(%x_1,
// LOWERED-NEXT: [[S:%.*]], [[T:%.*]] = dist.allreduce sum [[A]], [[B]]
// LOWERED-NEXT: "onnx.Sub"(%x, [[S]]){{.*}} tensor<4x3xf32, #dist.on<0>>
// LOWERED-NEXT: "onnx.Sub"(%x_1, [[T]])
builtin.module {
  func.func @main(%x : tensor<8x3xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<8x3xf32> {dist.name = "y", dist.role = "output"}) {
    %axes = onnx.Constant dense<0> : tensor<1xi64>
    %sum = "onnx.ReduceSum"(%x, %axes) <{keepdims = 1 : si64}> : (tensor<8x3xf32>, tensor<1xi64>) -> tensor<1x3xf32>
    %y = "onnx.Sub"(%x, %sum) : (tensor<8x3xf32>, tensor<1x3xf32>) -> tensor<8x3xf32>
    func.return %y : tensor<8x3xf32>
  }
}
