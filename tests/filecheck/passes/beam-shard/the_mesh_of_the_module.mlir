// RUN: distir-opt %s -p 'beam-shard{machine=dgx-2}' | filecheck %s

// Without the option, the mesh is the one that the module names.

// CHECK: dist.mesh @mesh = <["tp" = 2]> {dist.seconds
// CHECK: "onnx.MatMul"{{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S2}>
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"}, %w: tensor<4096x4096xf16> {dist.name = "w", dist.role = "parameter"}) -> (tensor<4096x4096xf16> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4096x4096xf16>, tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  func.return %y : tensor<4096x4096xf16>
}
