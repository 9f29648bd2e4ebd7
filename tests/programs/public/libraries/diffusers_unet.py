"""A diffusion model of diffusers: noise is predicted."""

import torch
from diffusers import DDPMScheduler, UNet2DModel

images = torch.randn(4, 3, 32, 32)
model = UNet2DModel(
    sample_size=32, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
schedule = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(2):
    noise, times = torch.randn_like(images), torch.randint(0, 100, (4,))
    loss = torch.nn.functional.mse_loss(model(schedule.add_noise(images, noise, times), times).sample, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
torch.save(model.state_dict(), "unet.pt")
