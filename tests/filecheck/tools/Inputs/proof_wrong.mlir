// Each device has one column of x and one row of w: what it computes is an addend, and no device adds them up.
builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(%x0: tensor<4x1xf32, #dist.on<0>> {dist.name = "x", dist.part = #dist.part<[0:4, 0:1] of [4, 2]>}, %x1: tensor<4x1xf32, #dist.on<1>> {dist.name = "x", dist.part = #dist.part<[0:4, 1:2] of [4, 2]>}, %w0: tensor<1x2xf32, #dist.on<0>> {dist.name = "w", dist.part = #dist.part<[0:1, 0:2] of [2, 2]>}, %w1: tensor<1x2xf32, #dist.on<1>> {dist.name = "w", dist.part = #dist.part<[1:2, 0:2] of [2, 2]>})
      -> (tensor<4x2xf32, #dist.on<0>> {dist.name = "y", dist.part = #dist.part<[0:4, 0:2] of [4, 2]>}, tensor<4x2xf32, #dist.on<1>> {dist.name = "y", dist.part = #dist.part<[0:4, 0:2] of [4, 2]>}) {
    %h0 = "onnx.MatMul"(%x0, %w0) : (tensor<4x1xf32, #dist.on<0>>, tensor<1x2xf32, #dist.on<0>>) -> tensor<4x2xf32, #dist.on<0>>
    %h1 = "onnx.MatMul"(%x1, %w1) : (tensor<4x1xf32, #dist.on<1>>, tensor<1x2xf32, #dist.on<1>>) -> tensor<4x2xf32, #dist.on<1>>
    %y = "onnx.Relu"(%h0) : (tensor<4x2xf32, #dist.on<0>>) -> tensor<4x2xf32, #dist.on<0>>
    %z = "onnx.Relu"(%h1) : (tensor<4x2xf32, #dist.on<1>>) -> tensor<4x2xf32, #dist.on<1>>
    func.return %y, %z : tensor<4x2xf32, #dist.on<0>>, tensor<4x2xf32, #dist.on<1>>
  }
}
