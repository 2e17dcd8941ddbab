// RUN: distir-opt %s -p 'beam-shard{mesh="dp=2,tp=2" machine=dgx-2 restrict="dp=batch,tp=model"}' | filecheck %s

// Each axis cuts what it may.

// CHECK: "onnx.MatMul"{{.*}}dist.strategy = #dist.strategy<@mesh, {"dp": S1, "tp": S2}>
func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"}, %w: tensor<4096x4096xf16> {dist.name = "w", dist.role = "parameter"}) -> (tensor<4096x4096xf16> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4096x4096xf16>, tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  func.return %y : tensor<4096x4096xf16>
}
