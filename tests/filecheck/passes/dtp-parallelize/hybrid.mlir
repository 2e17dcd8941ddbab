// RUN: distir-opt -p 'dtp-parallelize{dp=8 dp_replicate=2 zero=3}' --print-pipeline | filecheck %s
// RUN: not distir-opt %s -p 'dtp-parallelize{dp=4 dp_replicate=3}' 2>&1 | filecheck %s --check-prefix=UNEVEN

// Groups of replicas: an axis of its own, along which nothing is stored in parts.

// CHECK: zero-partition{stage=0 axis="dp_replicate"},zero-partition{stage=3},ilp-shard{mesh="dp_replicate=2,dp=4,tp=1" restrict="dp_replicate=batch,dp=batch,tp=model" divide=true}
// UNEVEN: dp_replicate: 3 groups do not divide 4 replicas
func.func @main(%x: tensor<4xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
