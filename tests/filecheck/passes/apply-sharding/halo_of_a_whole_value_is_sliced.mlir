// RUN: distir-opt %s -p apply-sharding | filecheck %s

// A whole value is sliced where it is: no communication. Windows of three move on by two.

// CHECK:      func.func @main
// CHECK-NOT: dist.exchange
// CHECK: dist.slice %x [0:1, 0:1, 0:5, 0:4]
// CHECK-NEXT: dist.slice %x_1 [0:1, 0:1, 4:9, 0:4]

dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<1x1x9x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {}, {}]>}) -> tensor<1x1x4x2xf32> {
  %y = "onnx.AveragePool"(%x) <{kernel_shape = [3 : si64, 3 : si64], strides = [2 : si64, 1 : si64]}> {dist.rule = #dist.rule<[S1, S2, S3(halo = [0, 2], stride = 2), S4(halo = [0, 2])] -> {S1: gather(0), S2: gather(1), S3: gather(2), S4: gather(3)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S3}>} : (tensor<1x1x9x4xf32>) -> tensor<1x1x4x2xf32>
  func.return %y : tensor<1x1x4x2xf32>
}
