// RUN: distir-opt %s -p "overlap-communication{chunks=4 machine=dgx-a100},check-module" | filecheck %s

// What arrives from another stage meanwhile is nothing that the device computes: it is not asked what it would take.
// CHECK-COUNT-4: dist.allreduce sum
// CHECK-NOT:     dist.allreduce
dist.mesh @mesh = <["tp" = 8]>

func.func @main(%x: tensor<8192x2048xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:8192, 0:2048] of [8192, 16384], "tp" + [0, 2048]>},
                %w: tensor<2048x8192xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:2048, 0:8192] of [16384, 8192], "tp" + [2048, 0]>},
                %y: tensor<8x8xbf16, #dist.on<8:16>> {dist.part = #dist.part<[0:8, 0:8] of [8, 8]>})
    -> (tensor<8192x8192xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:8192, 0:8192] of [8192, 8192]>},
        tensor<8x8xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:8, 0:8] of [8, 8]>}) {
  %p = "onnx.MatMul"(%x, %w) : (tensor<8192x2048xbf16, #dist.on<0:8>>, tensor<2048x8192xbf16, #dist.on<0:8>>) -> tensor<8192x8192xbf16, #dist.on<0:8>>
  %s = dist.allreduce sum %p over "tp" : (tensor<8192x8192xbf16, #dist.on<0:8>>) -> tensor<8192x8192xbf16, #dist.on<0:8>>
  %q = dist.send %y to 0 : tensor<8x8xbf16, #dist.on<8:16>> -> tensor<8x8xbf16, #dist.on<0:8>>
  %a = "onnx.Relu"(%s) : (tensor<8192x8192xbf16, #dist.on<0:8>>) -> tensor<8192x8192xbf16, #dist.on<0:8>>
  func.return %a, %q : tensor<8192x8192xbf16, #dist.on<0:8>>, tensor<8x8xbf16, #dist.on<0:8>>
}
